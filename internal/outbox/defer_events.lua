local queue_key, due_key = unpack(KEYS)
-- uses: clock, full, queue

-- Defers events, without counting an attempt.
-- The arguments are each leased event as the queue has it, and the time until it is due in ms, in turn.
-- Returns {'OK'}.

local events = open_queue(queue_key, due_key)
write_when_full('ZREM', queue_key)
for i = 1, #ARGV, 2 do
  events.put_back(ARGV[i], now_ms + ARGV[i + 1])
end
return {'OK'}
