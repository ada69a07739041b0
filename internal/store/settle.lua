-- Settles a session with a payment, for a rail.
-- KEYS[1] is the session, KEYS[2] the event of its end, KEYS[3] that of a late and KEYS[4] that of a mismatching payment, KEYS[5] the
-- bucket's queue, KEYS[6] its due merchants, KEYS[7] the feed.
-- rules are those for the outcome; paid_at is in ms, and paid_at and reason are empty if not given. keep is how long to keep the session
-- from a report on in ms, empty: no longer than it is. most is how many refused payments a session keeps. replicated is '1' if the answer
-- waits for replicas.
local rules, outcome, payment_ref, amount, paid_at, reason, keep, most, replicated, history = unpack(ARGV)

local s = sessions(KEYS[5], KEYS[6], history)
local refused = 'l:' .. payment_ref
local fields = s.read(KEYS[1], KEYS[2], KEYS[7], refused, 'n')
if not fields[RECORD] then
  return {'NOT_FOUND'}
end

-- What a refused payment was: '<decision> <amount> <when it was paid in ms, or 0>'. One that had failed before, and settled the session by
-- that, has both: a report is compared with the one of its own outcome.
local earlier, kept = fields[#{SESSION_FIELDS} + 1], tonumber(fields[#{SESSION_FIELDS} + 2]) or 0
local settled = fields[PAYMENT_REF] == payment_ref
local payment, known_amount = 'unknown', string.match(fields[RECORD], '^[^\t]+\t(%d+)\t')
if earlier and not (settled and outcome == 'FAILED') then
  payment, known_amount = 'refused', string.match(earlier, '^[%a_]+ (%d+) ')
elseif settled then
  payment = 'settled'
end
local decision = known_amount and s.decide(rules, payment, fields, known_amount == amount)
if not decision then
  return {'CORRUPT'}
end

local event = decision == 'late' and {'session.late_payment', KEYS[3]} or decision == 'mismatched' and {'session.payment_mismatch', KEYS[4]}
local refund = event or decision == 'merchant_deleted' -- without an event, in the feed too: nobody could receive it
-- Beyond the bound too while the session is pending: else a replica that has not seen the deletion takes the repeated payment.
local stored = not refund or kept < tonumber(most) or decision == 'merchant_deleted' and not fields[STATUS]
if decision == 'applied' then
  local ending = {s = outcome, r = payment_ref, y = reason ~= '' and reason or nil, w = paid_at ~= '' and paid_at or nil}
  s.finish(KEYS[1], KEYS[2], KEYS[7], ending)
  fields[STATUS], fields[ENDED_AT], fields[PAYMENT_REF] = outcome, ending.e, payment_ref
  fields[REASON], fields[PAID_AT] = ending.y or false, ending.w or false
elseif refund and stored then
  local record = decision .. ' ' .. amount .. ' ' .. (paid_at ~= '' and paid_at or '0')
  if event then
    s.change(KEYS[1], event[2], KEYS[7], event[1], {[refused] = record, n = kept + 1}, {r = payment_ref, v = amount, w = paid_at ~= '' and paid_at})
  else
    call('HSET', KEYS[1], refused, record, 'n', kept + 1)
  end
end
if (decision == 'applied' or refund and stored) and keep ~= '' then
  call('PEXPIRE', KEYS[1], keep) -- a report that is repeated gets the first one's answer for as long
elseif replicated == '1' then
  -- WAIT waits for the last write of its own connection (Redis 7.2, Valkey), and this answer rests on what another one may have
  -- written. A field written as it is makes no difference but to that: replicas confirm in order.
  call('HSET', KEYS[1], 'x', fields[EXPIRES_AT])
end
return {'OK', decision, fields, stored and 0 or 1}
