local queue_key, dead_key, due_key = unpack(KEYS)
-- uses: clock

-- Counts what waits in a bucket.
-- queue_key and due_key are its queue (lib/queue), dead_key are its dead letters. The arguments are paused accounts.
-- Returns {'OK', events in the queue, dead letters, for how many ms the first event is due of an account that is not paused}.

local paused = {}
for _, account in ipairs(ARGV) do
  paused[account] = true
end
local overdue, first = 0, call('ZRANGE', due_key, 0, #ARGV, 'WITHSCORES')
for i = #first - 1, 1, -2 do
  if not paused[first[i]] then
    overdue = math.max(0, now_ms - first[i + 1])
  end
end
return {'OK', call('ZCARD', queue_key), call('ZCOUNT', dead_key, now_ms - const.EVENT_RETENTION_MS, '+inf'), overdue}
