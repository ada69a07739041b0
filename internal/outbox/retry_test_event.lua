local queue_key, due_key, event_key = unpack(KEYS)
local leased, delay, reason = unpack(ARGV)
-- uses: clock, full, queue, lease_held

-- Counts a failed attempt of an event of test mode, against the event alone.
-- leased is the leased event as the queue has it, delay the time to the next attempt in ms.
-- Returns {'STALE'}: the lease was lost; or {'OK'}.

if not lease_held(queue_key, leased, event_key) then
  return {'STALE'}
end
write_when_full('ZREM', queue_key)
call('HINCRBY', event_key, field.ATTEMPTS, 1)
call('HSET', event_key, field.WHY, reason)
open_queue(queue_key, due_key).put_back(leased, now_ms + delay)
return {'OK'}
