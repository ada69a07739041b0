local session_key, ended_key, refund_key, queue_key, due_key, feed_key, owed_key = unpack(KEYS)
local merchant_deleted, payment_ref, refund_ref, cents, keep, max_refunds, replicated, history = unpack(ARGV)
-- uses: clock, sessions, refused, refund_decisions

-- Records that a rail has paid back a payment, or a part of it.
-- ended_key is the event of the session's end, refund_key is the event of this refund, owed_key lists the payments to be refunded.
-- payment_ref and refund_ref are '<rail> <reference>'. keep is how long to keep the session from now on in ms, max_refunds is how many
-- refunds of each rail it keeps. replicated is 'yes' if the answer waits for replicas. history is of the feed.
-- Returns {'NOT_FOUND'}, {'CORRUPT'}, or {'OK', decision, when the refund was recorded in ms}.

local sessions = open_sessions(queue_key, due_key, history)
local refused_field, refund_field = field.REFUSED .. payment_ref, field.REFUND .. refund_ref
local fields = sessions.read(session_key, ended_key, feed_key, refused_field, refund_field, field.LISTED)
if not fields[at.RECORD] then
  return {'NOT_FOUND'}
end
local refused, earlier, kept = unpack(fields, #const.SESSION_FIELDS + 1)

-- A payment that failed, and settled the session by that, may have been refused later: then it has both.
local taken = not refused and fields[at.PAYMENT_REF] == payment_ref and sessions.status(fields) == 'COMPLETED'
local paid, currency = '0', ''
if refused then
  paid, currency = read_refused(refused)
elseif taken then
  paid = string.match(fields[at.RECORD], const.RECORD_AMOUNT)
end

-- Each refund is '<cents> <when it was recorded in ms> <payment>'. Those of other rails are of other payments, and take no room from
-- this one.
local own = field.REFUND .. string.match(refund_ref, '^[^ ]* ')
local all, count, refunded = call('HGETALL', session_key), 0, tonumber(cents)
for i = 1, #all, 2 do
  if string.sub(all[i], 1, #own) == own then
    local part, of = string.match(all[i + 1], '^(%d+) %d+ ([^\t]+)')
    count = count + 1
    refunded = refunded and part and refunded + (of == payment_ref and part or 0)
  end
end
local state, recorded_at = 'unknown', format('%d', now_ms)
if earlier then
  local earlier_cents, earlier_at, earlier_payment = string.match(earlier, '^(%d+) (%d+) ([^\t]+)')
  state = earlier_cents == cents and earlier_payment == payment_ref and 'same' or 'other'
  recorded_at = earlier_at
end
if not paid or not refunded then
  return {'CORRUPT'}
end
local decision = decisions[state][(refused or taken) and 'paid' or 'unpaid'][refunded <= tonumber(paid) and 'within' or 'beyond']
  [count < tonumber(max_refunds) and 'room' or 'full']

if decision == 'applied' then
  local change = {
    [refund_field] = cents .. ' ' .. recorded_at .. ' ' .. payment_ref,
    [field.LISTED] = kept or '0', -- there is something to list
    [field.REFUNDED] = taken and format('%d', refunded) or nil,
  }
  if merchant_deleted == 'yes' then -- without an event, in the feed too: it has no receiver
    for name, value in pairs(change) do
      call('HSET', session_key, name, value)
    end
  else
    sessions.change(session_key, refund_key, feed_key, 'session.payment_refunded', change, {
      [field.PAYMENT_REF] = payment_ref,
      [field.AMOUNT] = write_amount(cents, currency),
      [field.PAID_AT] = false,
      [field.REASON] = format('%d', paid) .. format(' %d ', refunded) .. string.match(refund_ref, ' (.*)'),
    })
  end
  call('PEXPIRE', session_key, keep) -- a confirmation that is repeated gets the first one's answer for as long
  if refunded == tonumber(paid) then
    redis.pcall('ZREM', owed_key, sessions.id(session_key) .. ' ' .. payment_ref) -- an index: it must not fail a refund that is recorded
  end
elseif replicated == 'yes' then
  call('HSET', session_key, field.EXPIRES_AT, fields[at.EXPIRES_AT]) -- as in settle
end
return {'OK', decision, recorded_at}
