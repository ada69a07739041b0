local expiry_key, queue_key, due_key, expiry_queue_key = unpack(KEYS, 1, 4)
local name, history, since = unpack(ARGV, 1, 3)
-- uses: clock, sessions, sweep

-- Expires the overdue sessions of an expiry queue.
-- name is the queue's in expiry_key (list_overdue), since is when it is due there, history is of the feeds. Behind the named keys
-- are the keys of its first sessions, of the events of their ends and of their feeds, in turn; behind the named arguments are its
-- first entries as they were listed.
-- Returns what sweep.reply() of lib/sweep returns.

local sweep = new_sweep(expiry_key, open_sessions(queue_key, due_key, history))
local keys, listed = {unpack(KEYS, 5)}, {unpack(ARGV, 4)}
local entries, done, due_at = redis.pcall('LRANGE', expiry_queue_key, 0, #listed), 0, false -- one more than was listed
if entries.err then
  sweep.fail(name, entries)
  return sweep.reply()
end
for i, entry in ipairs(entries) do
  if entry ~= listed[i] then
    due_at = since -- the queue has moved on since it was listed
    break
  end
  local outcome, expires = sweep.examine(entry, keys[3 * i - 2], keys[3 * i - 1], keys[3 * i])
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
return sweep.reply()
