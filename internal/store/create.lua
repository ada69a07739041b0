-- Creates a session, or replays the one its Idempotency-Key made.
-- KEYS[3] is the new session, KEYS[4] the line of those with its lifetime, KEYS[5] what is due for the sweep, KEYS[6] the
-- Idempotency-Key if the caller sent one. Next, to tell the merchant of the new session, that event, the bucket's queue and its due merchants.
-- ARGV[5] lifetime in ms, ARGV[6] how long to keep the session in ms, ARGV[7] what never changes of it.
-- What may be missing, or empty: ARGV[8] '1' to tell the merchant of the new session, ARGV[9] the customer's e-mail address,
-- and with an Idempotency-Key ARGV[10] how long to keep it in ms, ARGV[11] fingerprint of the charge, ARGV[12] '1' to reject
-- another charge under the same key.

-- include: prelude
local stored = ARGV[10] and call('MGET', KEYS[1], KEYS[2], KEYS[6]) or call('MGET', KEYS[1], KEYS[2])
-- include: admission

if stored[3] then
  local id, fingerprint = string.match(stored[3], '^(%S+) (%S+)$')
  if not id then
    return 'CORRUPT'
  end
  local same = fingerprint == ARGV[11]
  if not same and ARGV[12] == '1' then
    return 'MISMATCH '
    -- include: admitted
  end
  -- Only read, for which it is is known here alone. If it is gone or due to expire, the caller looks again with its key declared
  -- (original.lua).
  local original = call('HMGET', string.sub(KEYS[3], 1, 14) .. id, 's', 'x', 'e', 'f', 'u', 'r', 'y', 'w')
  local head = 'REPLAYED '
  -- include: admitted
  return {head, id, same and 1 or 0, original}
end

local expires = format('%d', now_ms + ARGV[5])
-- Sessions of one lifetime expire in the order of their creation, so they need only queue; the sweep is told when the first
-- of them is due. Both before the session: one that no sweep will look at must not be.
if call('RPUSH', KEYS[4], KEYS[3]) % 64 == 1 then -- now and then anew, should the line have got lost
  call('ZADD', KEYS[5], 'NX', expires, ARGV[5])
end
call('HSET', KEYS[3], 'x', expires, 'f', ARGV[7])
call('PEXPIRE', KEYS[3], ARGV[6])
if ARGV[8] then
  if ARGV[9] ~= '' then
    call('HSET', KEYS[3], 'u', ARGV[9])
  end
  if ARGV[10] then
    call('SET', KEYS[6], string.sub(KEYS[3], 15) .. ' ' .. ARGV[11], 'PX', ARGV[10]) -- behind '{bNN}:session:'
  end
  if ARGV[8] == '1' then
    local told = ARGV[10] and 7 or 6
    local queue_key, due_key = KEYS[told + 1], KEYS[told + 2]
    -- include: queue
    -- include: event
    change_session(KEYS[3], KEYS[told], 'session.created', {}, {})
  end
end
return 'CREATED '
-- include: admitted
