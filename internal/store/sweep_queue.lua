local expiry_key, queue_key, due_key, expiry_queue_key = unpack(KEYS, 1, 4)
local name, history, since = unpack(ARGV, 1, 3)
-- uses: clock, sessions, sweep

-- Expires the overdue sessions of an expiry queue.
-- name is the queue's in expiry_key, since is when it is due there. Behind the named keys are those of its first sessions, of the events of
-- their ends and of their feeds, in turn; behind the named arguments its first entries as they were listed.

local keys, listed = {unpack(KEYS, 5)}, {unpack(ARGV, 4)}
local entries, done, due_at = redis.pcall('LRANGE', expiry_queue_key, 0, #listed), 0, false -- one more than was listed
if entries.err then
  must_be_of_another_type(entries)
  examined = 1
  defer(name)
  return {'OK', expired, corrupt, examined, oldest}
end
for i, entry in ipairs(entries) do
  if entry ~= listed[i] then
    due_at = since -- the queue has moved on since it was listed
    break
  end
  local outcome, expires = examine(entry, keys[3 * i - 2], keys[3 * i - 1], keys[3 * i])
  if outcome == 'waits' then
    due_at = expires
    break
  end
  done = done + 1
end
call('LTRIM', expiry_queue_key, done, -1)
if due_at then
  call('ZADD', expiry_key, due_at, name)
else
  call('ZREM', expiry_key, name)
end
return {'OK', expired, corrupt, examined, oldest}
