-- Creates a session, or replays the one its Idempotency-Key made.
-- KEYS[3] is the new session, KEYS[4] the expiry queue of its lifetime, KEYS[5] says when the sweep must look, KEYS[6] is the
-- Idempotency-Key if the caller sent one. Next, for a charge with an orderRef, the sessions of that order, and to record session.created,
-- that event, the bucket's queue and its due merchants.
-- ARGV[5] lifetime in ms, ARGV[6] how long to keep the session in ms, ARGV[7] the record.
-- What may be missing, or empty: ARGV[8] '1' to record session.created, ARGV[9] the customer's e-mail address, ARGV[10] '1' if the charge
-- has an orderRef, and with an Idempotency-Key ARGV[11] how long to keep it in ms, ARGV[12] fingerprint of the charge, ARGV[13] '1' to
-- reject another charge under the same key.

if result then
  return result .. moment
end

if stored[3] then
  local key, fingerprint = string.match(stored[3], '^(%S+) (%S+)$')
  if not key then
    return 'CORRUPT' .. moment
  end
  local same = fingerprint == ARGV[12]
  if not same and ARGV[13] == '1' then
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
  local next_key = 6
  if ARGV[11] then
    call('SET', KEYS[6], KEYS[3] .. ' ' .. ARGV[12], 'PX', ARGV[11])
    next_key = 7
  end
  if ARGV[10] == '1' then
    -- MGET, as the charge must not fail for a key of another type. See orders.go.
    local others = call('MGET', KEYS[next_key])[1] or ''
    call('SET', KEYS[next_key], string.sub(KEYS[3], -RANDOM_LENGTH) .. string.sub(others, 1, MAX_ORDER_SESSIONS * RANDOM_LENGTH), 'PX', ARGV[6])
    next_key = next_key + 1
  end
  if ARGV[8] == '1' then
    sessions(KEYS[next_key + 1], KEYS[next_key + 2]).change(KEYS[3], KEYS[next_key], false, 'session.created', {}, {})
  end
end
return 'CREATED' .. moment
