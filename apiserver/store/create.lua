-- Creates a session, or replays the one its Idempotency-Key made.
-- KEYS[4] is the new session, KEYS[5] the Idempotency-Key if the caller sent one.
-- ARGV[7] lifetime in ms, ARGV[8] and ARGV[9] how long to keep the session and the Idempotency-Key in ms,
-- ARGV[10] session id, ARGV[11] fingerprint of the charge, ARGV[12] '1' to reject another charge under the
-- same Idempotency-Key, ARGV[13] '1' to tell the merchant of the new session, from ARGV[14] on the session's other
-- fields, name and value in turn.

-- All keys begin with '{bNN}:'.
local space = string.sub(KEYS[1], 1, 6)
local stored = KEYS[5] and call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[5])
    or call('MGET', KEYS[1], KEYS[2], KEYS[3])
local refusal, backlog, used = admit(stored[1], stored[2], stored[3])
if refusal then
  return refusal
end

if stored[4] then
  local id, fingerprint = string.match(stored[4], '^(%S+) (%S+)$')
  if not id then
    return {'CORRUPT'}
  end
  local same = fingerprint == ARGV[11]
  if not same and ARGV[12] == '1' then
    return {'MISMATCH', now_us, backlog, used}
  end
  local read_session = history()
  local original = read_session(space .. 'session:' .. id)
  if not original[1] then
    return {'CORRUPT'} -- the original is lost; a second charge is the one answer that must not be given
  end
  return {'REPLAYED', now_us, backlog, used, id, same and 1 or 0, original}
end

local expires = format('%d', now_ms + ARGV[7])
call('ZADD', space .. 'expiry', expires, ARGV[10])
call('HSET', KEYS[4], 's', 'PENDING', 'c', format('%d', now_ms), 'x', expires, unpack(ARGV, 14))
call('PEXPIRE', KEYS[4], ARGV[8])
if KEYS[5] then
  call('SET', KEYS[5], ARGV[10] .. ' ' .. ARGV[11], 'PX', ARGV[9])
end
if ARGV[13] == '1' then
  local _, change_session = history()
  change_session(KEYS[4], 'session.created', 'created', {}, {})
end
return {'CREATED', now_us, backlog, used}
