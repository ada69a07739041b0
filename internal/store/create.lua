local rate_key, override_key, session_key, expiry_queue_key, expiry_key, idempotency_key, order_key, event_key, queue_key, due_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, lifetime, keep, record, emit_created, email, ordered, settle_after, idempotency_keep, fingerprint, reject_mismatch = unpack(ARGV)
local stored = idempotency_keep and redis.call('MGET', rate_key, override_key, idempotency_key) or redis.call('MGET', rate_key, override_key)
local tat, override, original = stored[1], stored[2], stored[3]
-- uses: clock, admission, sessions

-- Creates a session, or replays the one that its Idempotency-Key made.
-- lib/admission describes rate_key, override_key, last_use_key and the first four arguments. expiry_queue_key is the queue of the
-- lifetime, expiry_key has when the sweep must examine a queue. Where a charge has no Idempotency-Key, no orderRef or no event of
-- its creation, another key stands in the place of theirs.
-- lifetime, keep, settle_after and idempotency_keep are in ms. settle_after is when the sweep must examine a test session that is
-- paid without a rail. From emit_created on arguments may be missing; an empty email, and an empty settle_after, are none.
-- Returns '<result><quota>'; 'CORRUPT<quota>' and 'MISMATCH<quota>' of an Idempotency-Key; 'CREATED<quota>'; or
-- {'REPLAYED<quota>', key of the original session, 1 if it is of the same charge, its fields}.

if result then
  return result .. quota
end

if original then
  local key, original_fingerprint = string.match(original, '^(%S+) (%S+)')
  if not key then
    return 'CORRUPT' .. quota
  end
  local same = original_fingerprint == fingerprint
  if not same and reject_mismatch == 'yes' then
    return 'MISMATCH' .. quota
  end
  -- Only read, as its key is not declared. If it is gone or due to expire, the caller reads it again (read_original).
  return {'REPLAYED' .. quota, key, same and 1 or 0, call('HMGET', key, unpack(const.SESSION_FIELDS))}
end

local expires = format('%d', now_ms + lifetime)
-- Sessions of one lifetime expire in the order of their creation, so they only queue, and the sweep examines the queue when the
-- first of them is due. All of this before the session: there must be none that no sweep will examine.
if settle_after and settle_after ~= '' then
  call('ZADD', expiry_key, now_ms + settle_after, session_key)
end
if call('RPUSH', expiry_queue_key, session_key) % 64 == 1 then -- now and then again, should the entry be lost
  call('ZADD', expiry_key, 'NX', expires, lifetime)
end
call('HSET', session_key, field.EXPIRES_AT, expires, field.RECORD, record)
call('PEXPIRE', session_key, keep)
if emit_created then
  if email ~= '' then
    call('HSET', session_key, field.EMAIL, email)
  end
  if idempotency_keep then
    call('SET', idempotency_key, session_key .. ' ' .. fingerprint, 'PX', idempotency_keep)
  end
  if ordered == 'yes' then
    -- MGET, as the charge must not fail for a key of another type. See orders.go.
    local others = string.sub(call('MGET', order_key)[1] or '', 1, const.MAX_ORDER_SESSIONS * const.RANDOM_LENGTH)
    call('SET', order_key, string.sub(session_key, -const.RANDOM_LENGTH) .. others, 'PX', keep)
  end
  if emit_created == 'yes' then
    open_sessions(queue_key, due_key).change(session_key, event_key, false, 'session.created', {}, {})
  end
end
return 'CREATED' .. quota
