-- Counts what waits in a bucket, and for how long the first event is due of a merchant that is not blocked.
-- KEYS[1] is the queue, KEYS[2] the dead letters, KEYS[3] the due merchants. ARGV[1] is how long dead letters are kept in ms, the others are
-- blocked merchants.

local dead_keep, blocked = ARGV[1], {}
for i = 2, #ARGV do
  blocked[ARGV[i]] = true
end
local overdue, first = 0, call('ZRANGE', KEYS[3], 0, #ARGV - 1, 'WITHSCORES')
for i = #first - 1, 1, -2 do
  if not blocked[first[i]] then
    overdue = math.max(0, now_ms - first[i + 1])
  end
end
return {'OK', call('ZCARD', KEYS[1]), call('ZCOUNT', KEYS[2], now_ms - dead_keep, '+inf'), overdue}
