local queue_key, dead_key, due_key = unpack(KEYS)
local dead_keep = unpack(ARGV, 1, 1)

-- Counts what waits in a bucket, and for how long the first event is due of an account that is not paused. Behind the named argument are paused
-- accounts. dead_keep is how long dead letters are kept in ms.

local paused = {}
for i = 2, #ARGV do
  paused[ARGV[i]] = true
end
local overdue, first = 0, call('ZRANGE', due_key, 0, #ARGV - 1, 'WITHSCORES')
for i = #first - 1, 1, -2 do
  if not paused[first[i]] then
    overdue = math.max(0, now_ms - first[i + 1])
  end
end
return {'OK', call('ZCARD', queue_key), call('ZCOUNT', dead_key, now_ms - dead_keep, '+inf'), overdue}
