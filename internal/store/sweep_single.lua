-- Expires a session that stands by itself in the zset.
-- KEYS[1] is the zset that tells what is due, KEYS[2] the bucket's queue, KEYS[3] its due merchants, KEYS[4] the session, KEYS[5] the
-- event that tells of its end.

-- include: prelude
local queue_key, due_key = KEYS[2], KEYS[3]
-- include: queue
-- include: event
-- include: expiry
-- include: sweep

local outcome, expires = look(KEYS[4], KEYS[5])
if outcome == 'waits' then
  call('ZADD', KEYS[1], expires, id_of(KEYS[4]))
elseif outcome ~= 'corrupt' then
  call('ZREM', KEYS[1], id_of(KEYS[4]))
end
return {'OK', expired, corrupt, looked, oldest}
