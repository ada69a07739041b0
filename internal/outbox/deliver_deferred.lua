-- Puts events off, without counting an attempt. Those whose lease was lost are left alone.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants.
-- ARGV: each leased event as the queue has it, and the time to the next look in ms, in turn.

-- include: prelude
local queue_key, due_key = KEYS[1], KEYS[2]
-- include: queue

for i = 1, #ARGV, 2 do
  release(ARGV[i], now_ms + ARGV[i + 1])
end
return {'OK'}
