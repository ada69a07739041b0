local queue_key, due_key, event_key = unpack(KEYS)
local leased, delay, reason = unpack(ARGV)
-- uses: clock, full, queue, lease_held

-- Counts a failed attempt of an event of test mode, against the event alone. leased is the leased event as the queue has it, delay the time to the
-- next attempt in ms.

if not lease_held() then
  return {'STALE'}
end
write_when_full('ZREM', queue_key)
call('HINCRBY', event_key, 'attempts', 1)
call('HSET', event_key, 'why', reason)
events.put_back(leased, now_ms + delay)
return {'OK'}
