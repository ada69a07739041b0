local rate_key, override_key, session_key, expiry_queue_key, expiry_key, idempotency_key, order_key, event_key, queue_key, due_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, lifetime, keep, record, emit_created, email, ordered, settle_after, idempotency_keep, fingerprint, reject_mismatch = unpack(ARGV)
local stored = idempotency_keep and redis.call('MGET', rate_key, override_key, idempotency_key) or redis.call('MGET', rate_key, override_key)
local tat, override, original = stored[1], stored[2], stored[3]
-- uses: clock, admission, sessions

-- Creates a session, or replays the one that its Idempotency-Key made. Times are in ms.
-- expiry_queue_key is that of the lifetime, expiry_key has when the sweep must examine a queue. Where a charge has no Idempotency-Key, no orderRef or no event
-- of its creation, another key stands in the place of theirs. From emit_created on arguments may be missing; an empty email, and an empty
-- settle_after, are none. settle_after is when the sweep must examine a test session that is to be paid without a rail.

if result then
  return result .. quota
end

if original then
  local key, original_fingerprint = string.match(original, '^(%S+) (%S+)')
  if not key then
    return 'CORRUPT' .. quota
  end
  local same = original_fingerprint == fingerprint
  if not same and reject_mismatch == '1' then
    return 'MISMATCH' .. quota
  end
  -- Only read, as its key is not declared. If it is gone or due to expire, the caller reads it again (read_original).
  return {'REPLAYED' .. quota, key, same and 1 or 0, call('HMGET', key, SESSION_FIELDS)}
end

local expires = format('%d', now_ms + lifetime)
-- Sessions of one lifetime expire in the order of their creation, so they only queue, and the sweep examines the queue when the first of them is
-- due. All of this before the session: there must be none that no sweep will examine.
if settle_after and settle_after ~= '' then
  call('ZADD', expiry_key, now_ms + settle_after, session_key)
end
if call('RPUSH', expiry_queue_key, session_key) % 64 == 1 then -- now and then again, should the entry be lost
  call('ZADD', expiry_key, 'NX', expires, lifetime)
end
call('HSET', session_key, 'x', expires, 'f', record)
call('PEXPIRE', session_key, keep)
if emit_created then
  if email ~= '' then
    call('HSET', session_key, 'u', email)
  end
  if idempotency_keep then
    call('SET', idempotency_key, session_key .. ' ' .. fingerprint, 'PX', idempotency_keep)
  end
  if ordered == '1' then
    -- MGET, as the charge must not fail for a key of another type. See orders.go.
    local others = call('MGET', order_key)[1] or ''
    call('SET', order_key, string.sub(session_key, -RANDOM_LENGTH) .. string.sub(others, 1, MAX_ORDER_SESSIONS * RANDOM_LENGTH), 'PX', keep)
  end
  if emit_created == '1' then
    sessions().change(session_key, event_key, false, 'session.created', {}, {})
  end
end
return 'CREATED' .. quota
