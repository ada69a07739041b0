local session_key, ended_key, queue_key, due_key, feed_key = unpack(KEYS)
local payment, hold_ms, longest_ms, merchant_not_active, history = unpack(ARGV)
-- uses: clock, sessions, holds, hold_decisions

-- Holds a session for a payment, '<rail> <reference>', for hold_ms from now on, or releases it if that is 0. Each rail holds a session
-- for longest_ms at most, all its payments taken together. ended_key is the event of the session's end, history is of the feed.
-- Returns {'NOT_FOUND'}, {'CORRUPT'}, or {'OK', decision, until when a payment holds the session in ms, the time in ms}.

local sessions = open_sessions(queue_key, due_key, history)
local rail, ref = string.match(payment, '^([^ ]*) (.*)$')
local held_field = field.HELD .. rail
local fields = sessions.read(session_key, ended_key, feed_key,
  field.REFUSED .. payment, field.FAILURES .. rail, field.HOLD, held_field, field.MERCHANT_DELETED)
if not fields[at.RECORD] then
  return {'NOT_FOUND'}
end
local refused, failures, hold, held, merchant_deleted = unpack(fields, #const.SESSION_FIELDS + 1)
local holder, ends = read_hold(hold, payment)
-- How long the rail has held it, without what is left of this hold.
held = (tonumber(held) or 0) - (holder == 'self' and ends - now_ms or 0)
local case = 'new'
if hold_ms == '0' then
  case = 'release'
elseif fields[at.PAYMENT_REF] == payment or refused or failures and string.find(failures, '\n' .. ref .. '\n', 1, true) then
  case = 'used'
end
local by_holder = decisions[sessions.status(fields)]
if not by_holder then
  return {'CORRUPT'}
end
local decision = by_holder[holder][case]
if case == 'release' then
  if decision == 'applied' then
    call('HDEL', session_key, field.HOLD)
    call('HSET', session_key, held_field, format('%d', held))
  end
  decision = decision == 'in_progress' and decision or 'released'
elseif (merchant_not_active == 'yes' or merchant_deleted) and (decision == 'applied' or decision == 'in_progress') then
  decision = 'merchant_not_active'
elseif decision == 'applied' then
  ends, held = now_ms + hold_ms, held + hold_ms
  if ends > tonumber(fields[at.EXPIRES_AT]) then
    decision = 'expires_too_soon'
  elseif held > tonumber(longest_ms) then
    decision = 'hold_too_long'
  else
    decision = 'held'
    call('HSET', session_key, field.HOLD, format('%d ', ends) .. payment, held_field, format('%d', held))
  end
end
return {'OK', decision, format('%d', ends), format('%d', now_ms)}
