-- Expires the overdue sessions of an expiry queue.
-- KEYS[4] is the expiry queue, from KEYS[5] on in turn its first sessions, the events of their end and their feeds. ARGV[1] is the queue's
-- name in KEYS[1], ARGV[3] since when it is due, from ARGV[4] on its first entries as they were listed.

local listed = #ARGV - 3
local entries, done, due_at = redis.pcall('LRANGE', KEYS[4], 0, listed), 0, false -- one more than was listed
if entries.err then
  must_be_of_another_type(entries)
  examined = 1
  put_off(ARGV[1])
  return {'OK', expired, corrupt, examined, oldest}
end
for i, entry in ipairs(entries) do
  if entry ~= ARGV[3 + i] then
    due_at = ARGV[3] -- the queue has moved on since it was listed
    break
  end
  local outcome, expires = examine(entry, KEYS[2 + 3 * i], KEYS[3 + 3 * i], KEYS[4 + 3 * i])
  if outcome == 'waits' then
    due_at = expires
    break
  end
  done = done + 1
end
call('LTRIM', KEYS[4], done, -1)
if due_at then
  call('ZADD', KEYS[1], due_at, ARGV[1])
else
  call('ZREM', KEYS[1], ARGV[1])
end
return {'OK', expired, corrupt, examined, oldest}
