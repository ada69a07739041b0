-- Creates a session, or replays the one its Idempotency-Key made.
-- KEYS[4] is the new session, KEYS[5] the Idempotency-Key if the caller sent one.
-- ARGV[7] lifetime in ms, ARGV[8] and ARGV[9] how long to keep the session and the Idempotency-Key in ms,
-- ARGV[10] session id, ARGV[11] fingerprint of the charge, ARGV[12] '1' to reject another charge under the
-- same Idempotency-Key, from ARGV[13] on the session's other fields, name and value in turn.

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
  -- The one key that is not in KEYS, since only Redis knows it. It has the hash tag of KEYS[4], hence its slot.
  local original = read_session(string.sub(KEYS[4], 1, -1 - #ARGV[10]) .. id)
  if not original[1] then
    return {'CORRUPT'} -- the original is lost; a second charge is the one answer that must not be given
  end
  return {'REPLAYED', now_us, backlog, used, id, same and 1 or 0, original}
end

call('HSET', KEYS[4], 's', 'PENDING', 'c', now_ms, 'x', now_ms + ARGV[7], unpack(ARGV, 13))
call('PEXPIRE', KEYS[4], ARGV[8])
if KEYS[5] then
  call('SET', KEYS[5], ARGV[10] .. ' ' .. ARGV[11], 'PX', ARGV[9])
end
return {'CREATED', now_us, backlog, used}
