-- Defers events, without counting an attempt.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants; ARGV each leased event as the queue has it, and the time until it is due in ms, in
-- turn.

for i = 1, #ARGV, 2 do
  events.put_back(ARGV[i], now_ms + ARGV[i + 1])
end
return {'OK'}
