-- Creates a session, or replays the one its Idempotency-Key made.
-- KEYS[3] is the new session, KEYS[4] the expiry queue of its lifetime, KEYS[5] says when the sweep must look, KEYS[6] is the
-- Idempotency-Key if the caller sent one. Next, to record session.created, that event, the bucket's queue and its due merchants.
-- ARGV[5] lifetime in ms, ARGV[6] how long to keep the session in ms, ARGV[7] the record.
-- What may be missing, or empty: ARGV[8] '1' to record session.created, ARGV[9] the customer's e-mail address,
-- and with an Idempotency-Key ARGV[10] how long to keep it in ms, ARGV[11] fingerprint of the charge, ARGV[12] '1' to reject
-- another charge under the same key.

if result then
  return result .. moment
end

if stored[3] then
  local key, fingerprint = string.match(stored[3], '^(%S+) (%S+)$')
  if not key then
    return 'CORRUPT' .. moment
  end
  local same = fingerprint == ARGV[11]
  if not same and ARGV[12] == '1' then
    return 'MISMATCH' .. moment
  end
  -- Only read, as its key is not declared. If it is gone or due to expire, the caller reads it again (read_original).
  return {'REPLAYED' .. moment, key, same and 1 or 0, call('HMGET', key, SESSION_FIELDS)}
end

local expires = format('%d', now_ms + ARGV[5])
-- Sessions of one lifetime expire in the order of their creation, so they only queue, and the sweep looks when the first of them is
-- due. Both before the session: one that no sweep will look at must not be.
if call('RPUSH', KEYS[4], KEYS[3]) % 64 == 1 then -- now and then anew, should the queue have got lost
  call('ZADD', KEYS[5], 'NX', expires, ARGV[5])
end
call('HSET', KEYS[3], 'x', expires, 'f', ARGV[7])
call('PEXPIRE', KEYS[3], ARGV[6])
if ARGV[8] then
  if ARGV[9] ~= '' then
    call('HSET', KEYS[3], 'u', ARGV[9])
  end
  if ARGV[10] then
    call('SET', KEYS[6], KEYS[3] .. ' ' .. ARGV[11], 'PX', ARGV[10])
  end
  if ARGV[8] == '1' then
    local event = ARGV[10] and 7 or 6
    sessions(KEYS[event + 1], KEYS[event + 2]).change(KEYS[3], KEYS[event], 'session.created', {}, {})
  end
end
return 'CREATED' .. moment
