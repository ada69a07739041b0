-- Expires the sessions of a line whose time is over.
-- KEYS[1] is the zset that tells what is due, KEYS[2] the bucket's queue, KEYS[3] its due merchants, KEYS[4] the line, from KEYS[5] on
-- in turn its first sessions and the events that tell of their end. ARGV[1] is the line's name in the zset, ARGV[2] since when it is due.

-- include: prelude
local queue_key, due_key = KEYS[2], KEYS[3]
-- include: queue
-- include: event
-- include: expiry
-- include: sweep

local line, served, due_at = redis.pcall('LRANGE', KEYS[4], 0, (#KEYS - 4) / 2), 0, false -- one more than is known here
if line.err then
  must_be_of_another_type(line)
  looked = 1
  put_off(ARGV[1])
  return {'OK', expired, corrupt, looked, oldest}
end
for i, entry in ipairs(line) do
  local key = KEYS[3 + 2 * i]
  if not key or id_of(key) ~= id_of(entry) then
    due_at = ARGV[2] -- it has gone on since it was listed
    break
  end
  local outcome, expires = look(key, KEYS[4 + 2 * i])
  if outcome == 'waits' then
    due_at = expires
    break
  end
  served = served + 1
end
call('LTRIM', KEYS[4], served, -1)
if due_at then
  call('ZADD', KEYS[1], due_at, ARGV[1])
else
  call('ZREM', KEYS[1], ARGV[1])
end
return {'OK', expired, corrupt, looked, oldest}
