-- Creates a session, or replays the one its Idempotency-Key made.
-- KEYS[3] is the new session, KEYS[4] the line of those with its lifetime, KEYS[5] the Idempotency-Key if the caller sent one.
-- ARGV[5] lifetime in ms, ARGV[6] how long to keep the session in ms, ARGV[7] what never changes of it.
-- What may be missing, or empty: ARGV[8] '1' to tell the merchant of the new session, ARGV[9] the customer's e-mail address,
-- and with an Idempotency-Key ARGV[10] how long to keep it in ms, ARGV[11] fingerprint of the charge, ARGV[12] '1' to reject
-- another charge under the same key.

-- include: prelude
local stored = KEYS[5] and call('MGET', KEYS[1], KEYS[2], KEYS[5]) or call('MGET', KEYS[1], KEYS[2])
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
  -- include: event
  -- include: expiry
  local original = read_session(space .. 'session:' .. id)
  if not original[4] then
    return 'CORRUPT' -- the original is lost; a second charge is the one answer that must not be given
  end
  local head = 'REPLAYED '
  -- include: admitted
  return {head, id, same and 1 or 0, original}
end

local expires = format('%d', now_ms + ARGV[5])
-- Sessions of one lifetime expire in the order of their creation, so they need only queue; the sweep is told when the first
-- of them is due. Both before the session: one that no sweep will look at must not be.
if call('RPUSH', KEYS[4], KEYS[3]) % 64 == 1 then -- now and then anew, should the line have got lost
  call('ZADD', string.sub(KEYS[4], 1, -2 - #ARGV[5]), 'NX', expires, ARGV[5])
end
call('HSET', KEYS[3], 'x', expires, 'f', ARGV[7])
call('PEXPIRE', KEYS[3], ARGV[6])
if ARGV[8] then
  if ARGV[9] ~= '' then
    call('HSET', KEYS[3], 'u', ARGV[9])
  end
  if KEYS[5] then
    call('SET', KEYS[5], string.sub(KEYS[3], 15) .. ' ' .. ARGV[11], 'PX', ARGV[10]) -- behind '{bNN}:session:'
  end
  if ARGV[8] == '1' then
    -- include: event
    change_session(KEYS[3], 'session.created', 'created', {}, {})
  end
end
return 'CREATED '
-- include: admitted
