-- Settles a session with a payment, for a rail.
-- KEYS[1] is the session, KEYS[2] the event that tells of its end, KEYS[3] that of a late and KEYS[4] that of a mismatching
-- payment, KEYS[5] the bucket's queue, KEYS[6] its due merchants. ARGV[1] are the rules for the payment's outcome, ARGV[2] is the outcome, ARGV[3] the payment
-- reference, ARGV[4] the amount in cents, ARGV[5] when it was paid in ms and ARGV[6] why it failed, both empty if not
-- told, ARGV[7] how long to keep the session from a report on in ms, ARGV[8] '1' if the answer waits for replicas.

-- include: prelude
local queue_key, due_key = KEYS[5], KEYS[6]
-- include: queue
-- include: event
-- include: expiry
-- include: transition
local refused = 'l:' .. ARGV[3]
local fields = read_session(KEYS[1], KEYS[2], refused)
if not fields[4] then
  return {'NOT_FOUND'}
end
local paid_at = ARGV[5] ~= '' and ARGV[5]

-- What a refused payment was: '<verdict> <amount> <when it was paid in ms, or 0>'.
local record = fields[9]
local standing, amount = 'unknown', string.match(fields[4], '^%S+ (%d+) ')
if record then
  standing, amount = 'refused', string.match(record, '^%a+ (%d+) ')
elseif fields[6] == ARGV[3] then
  standing = 'settled'
end
local verdict = amount and verdict_of(ARGV[1], standing, status_of(fields), amount == ARGV[4])
if not verdict then
  return {'CORRUPT'}
end

local function refuse(kind, event_key)
  local change = {[refused] = verdict .. ' ' .. ARGV[4] .. ' ' .. (paid_at or '0')}
  change_session(KEYS[1], event_key, kind, change, {r = ARGV[3], v = ARGV[4], w = paid_at})
end

if verdict == 'applied' then
  local reason = ARGV[6] ~= '' and ARGV[6] or nil
  end_session(KEYS[1], KEYS[2], {s = ARGV[2], e = now_ms, r = ARGV[3], y = reason, w = paid_at or nil})
  fields = read_session(KEYS[1], KEYS[2])
elseif verdict == 'late' then
  refuse('session.late_payment', KEYS[3])
elseif verdict == 'mismatched' then
  refuse('session.payment_mismatch', KEYS[4])
end
if verdict == 'applied' or verdict == 'late' or verdict == 'mismatched' then
  call('PEXPIRE', KEYS[1], ARGV[7]) -- a report that is repeated gets the first one's answer for as long
elseif ARGV[8] == '1' then
  -- WAIT waits for the last write of its own connection (Redis 7.2, Valkey), and this answer rests on what another one may have
  -- written. A field written as it is makes no difference but to that: replicas confirm in order.
  call('HSET', KEYS[1], 'x', fields[2])
end
return {'OK', verdict, fields}
