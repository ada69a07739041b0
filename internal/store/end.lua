--- cancel
-- Cancels a session for its merchant.
-- KEYS[3] is the session, KEYS[4] the event of its end, KEYS[5] the bucket's queue, KEYS[6] its due merchants; ARGV[5] the merchant id,
-- ARGV[6] the rules.

if refusal then
  return refusal .. moment
end
local s = sessions(KEYS[5], KEYS[6])
local fields = s.read(KEYS[3], KEYS[4])
-- Two merchants may share a bucket, so the key alone does not say whose session this is.
local owner = string.match(fields[RECORD] or '', '^[^ ]*')
if not fields[RECORD] or owner ~= ARGV[5] then
  return 'NOT_FOUND' .. moment
end
local decision = s.decide(ARGV[6], 'unknown', fields, true)
if not decision then
  return 'CORRUPT' .. moment
end
if decision == 'applied' then
  s.finish(KEYS[3], KEYS[4], {s = 'CANCELLED', e = now_ms})
  fields = s.read(KEYS[3], KEYS[4])
end
return {'OK' .. moment, decision, fields}

--- settle
-- Settles a session with a payment, for a rail.
-- KEYS[1] is the session, KEYS[2] the event of its end, KEYS[3] that of a late and KEYS[4] that of a mismatching payment, KEYS[5] the
-- bucket's queue, KEYS[6] its due merchants.
-- ARGV[1] are the rules for the payment's outcome, ARGV[2] is the outcome, ARGV[3] the payment reference, ARGV[4] the amount in cents,
-- ARGV[5] when it was paid in ms and ARGV[6] why it failed, both empty if not given, ARGV[7] how long to keep the session from a report
-- on in ms, ARGV[8] '1' if the answer waits for replicas.

local s = sessions(KEYS[5], KEYS[6])
local refused = 'l:' .. ARGV[3]
local fields = s.read(KEYS[1], KEYS[2], refused)
if not fields[RECORD] then
  return {'NOT_FOUND'}
end
local paid_at = ARGV[5] ~= '' and ARGV[5]

-- What a refused payment was: '<decision> <amount> <when it was paid in ms, or 0>'.
local earlier = fields[#{SESSION_FIELDS} + 1]
local payment, amount = 'unknown', string.match(fields[RECORD], '^%S+ (%d+) ')
if earlier then
  payment, amount = 'refused', string.match(earlier, '^%a+ (%d+) ')
elseif fields[PAYMENT_REF] == ARGV[3] then
  payment = 'settled'
end
local decision = amount and s.decide(ARGV[1], payment, fields, amount == ARGV[4])
if not decision then
  return {'CORRUPT'}
end

local function refuse(kind, event_key)
  local change = {[refused] = decision .. ' ' .. ARGV[4] .. ' ' .. (paid_at or '0')}
  s.change(KEYS[1], event_key, kind, change, {r = ARGV[3], v = ARGV[4], w = paid_at})
end

if decision == 'applied' then
  local reason = ARGV[6] ~= '' and ARGV[6] or nil
  s.finish(KEYS[1], KEYS[2], {s = ARGV[2], e = now_ms, r = ARGV[3], y = reason, w = paid_at or nil})
  fields = s.read(KEYS[1], KEYS[2])
elseif decision == 'late' then
  refuse('session.late_payment', KEYS[3])
elseif decision == 'mismatched' then
  refuse('session.payment_mismatch', KEYS[4])
end
if decision == 'applied' or decision == 'late' or decision == 'mismatched' then
  call('PEXPIRE', KEYS[1], ARGV[7]) -- a report that is repeated gets the first one's answer for as long
elseif ARGV[8] == '1' then
  -- WAIT waits for the last write of its own connection (Redis 7.2, Valkey), and this answer rests on what another one may have
  -- written. A field written as it is makes no difference but to that: replicas confirm in order.
  call('HSET', KEYS[1], 'x', fields[EXPIRES_AT])
end
return {'OK', decision, fields}
