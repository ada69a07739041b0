-- Creates a session, or replays the one its Idempotency-Key made.
-- KEYS[4] is the new session, KEYS[5] the line of those with its lifetime, KEYS[6] the Idempotency-Key if the caller sent one.
-- ARGV[5] lifetime in ms, ARGV[6] how long to keep the session in ms, ARGV[7] session id, ARGV[8] what never changes of it.
-- What may be missing, or empty: ARGV[9] '1' to tell the merchant of the new session, ARGV[10] the customer's e-mail address,
-- and with an Idempotency-Key ARGV[11] how long to keep it in ms, ARGV[12] fingerprint of the charge, ARGV[13] '1' to reject
-- another charge under the same key.

-- include: prelude
local stored = KEYS[6] and call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[6])
    or call('MGET', KEYS[1], KEYS[2], KEYS[3])
-- include: admission

if stored[4] then
  local id, fingerprint = string.match(stored[4], '^(%S+) (%S+)$')
  if not id then
    return 'CORRUPT'
  end
  local same = fingerprint == ARGV[12]
  if not same and ARGV[13] == '1' then
    return 'MISMATCH ' .. admitted
  end
  -- include: event
  -- include: expiry
  local original = read_session(space .. 'session:' .. id)
  if not original[2] then
    return 'CORRUPT' -- the original is lost; a second charge is the one answer that must not be given
  end
  return {'REPLAYED ' .. admitted, id, same and 1 or 0, original}
end

local expires = format('%d', now_ms + ARGV[5])
-- Sessions of one lifetime expire in the order of their creation, so they need only queue; the sweep is told when the first
-- of them is due.
if call('RPUSH', KEYS[5], ARGV[7]) == 1 then
  call('ZADD', string.sub(KEYS[5], 1, -2 - #ARGV[5]), expires, ARGV[5])
end
call('HSET', KEYS[4], 'x', expires, 'f', ARGV[8])
call('PEXPIRE', KEYS[4], ARGV[6])
if ARGV[9] then
  if ARGV[10] and ARGV[10] ~= '' then
    call('HSET', KEYS[4], 'u', ARGV[10])
  end
  if KEYS[6] then
    call('SET', KEYS[6], ARGV[7] .. ' ' .. ARGV[12], 'PX', ARGV[11])
  end
  if ARGV[9] == '1' then
    -- include: event
    change_session(KEYS[4], 'session.created', 'created', {}, {})
  end
end
return 'CREATED ' .. admitted
