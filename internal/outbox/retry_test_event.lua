-- Counts a failed attempt of an event of test mode, against the event alone.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event. ARGV[1] the leased event as the queue has it, ARGV[2] the time to
-- the next attempt in ms, ARGV[3] the reason.

if not held(KEYS[3], ARGV[1]) then
  return {'STALE'}
end
call('HINCRBY', KEYS[3], 'attempts', 1)
call('HSET', KEYS[3], 'why', ARGV[3])
events.put_back(ARGV[1], now_ms + ARGV[2])
return {'OK'}
