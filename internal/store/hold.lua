local session_key, event_key, queue_key, due_key, feed_key = unpack(KEYS)
local payment, hold_ms, longest_ms, merchant_inactive, history = unpack(ARGV)

-- Holds a session for a payment, '<rail> <reference>', for hold_ms from now on, or releases it if that is 0. A payment holds a session for
-- longest_ms at most, since it did so first. event_key is the event of the session's end, history that of the feed.

local s = sessions()
local fields = s.read(session_key, event_key, feed_key, 'h', 'l:' .. payment, 'k')
if not fields[RECORD] then
  return {'NOT_FOUND'}
end
local hold, refused, failures = unpack(fields, #{SESSION_FIELDS} + 1)
local holder, ends, since = 'nobody', 0, nil
if hold then
  holder, ends, since = read_hold(hold, payment)
end
local case = 'new'
if hold_ms == '0' then
  case = 'release'
elseif fields[PAYMENT_REF] == payment or refused or failures and string.find(failures, '\n' .. payment .. '\n', 1, true) then
  case = 'reported'
end
local by_holder = decisions[s.status(fields)]
if not by_holder then
  return {'CORRUPT'}
end
local decision = by_holder[holder][case]
if case == 'release' then
  if decision == 'applied' then
    call('HSET', session_key, 'h', format('0 %d ', since) .. payment) -- if it holds the session again, the time that it has held it counts
  end
  decision = decision == 'in_progress' and decision or 'released'
elseif merchant_inactive == '1' and (decision == 'applied' or decision == 'in_progress') then
  decision = 'merchant_not_active'
elseif decision == 'applied' then
  ends, since = now_ms + hold_ms, since or now_ms
  if ends > tonumber(fields[EXPIRES_AT]) then
    decision = 'expires_too_soon'
  elseif ends - since > tonumber(longest_ms) then
    decision = 'hold_too_long'
  else
    decision = 'held'
    call('HSET', session_key, 'h', format('%d %d ', ends, since) .. payment)
  end
end
return {'OK', decision, format('%d', ends), format('%d', now_ms)}
