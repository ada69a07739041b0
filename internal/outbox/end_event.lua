local queue_key, due_key, event_key, endpoint_key, watched_key = unpack(KEYS)
local leased, target, generation, lag, merchant = unpack(ARGV)
-- uses: clock, queue, endpoint, target

-- Ends an event that was delivered or dropped.
-- leased is the leased event as the queue has it. The keys of the endpoint, and the arguments behind leased, are given only if the
-- event was delivered, which says that the endpoint is healthy: target, generation and lag are where it was delivered to
-- (lib/target), watched_key lists the endpoints with something to report.
-- Returns {'STALE'}: the lease was lost; or {'OK'}.

if not open_queue(queue_key, due_key).release(leased) then
  return {'STALE'}
end
call('DEL', event_key)
if not endpoint_key then
  return {'OK'}
end
local endpoint = read_endpoint(endpoint_key)
if endpoint[at.DISABLED] or target_outdated(endpoint, target, generation, lag) then
  return {'OK'} -- only another target enables it, and a former target says nothing about it
end
note_target(endpoint_key, endpoint, target, generation)
local was_healthy = endpoint[at.HEALTHY] and not endpoint[at.SINCE] and not endpoint[at.PERMANENT] and endpoint[at.TARGET] == target
if was_healthy and string.sub(endpoint[at.DELIVERED] or '', 1, -4) == clock[1] then
  return {'OK'} -- people see the time of the last delivery in seconds
end
call('HSET', endpoint_key, field.DELIVERED, now_ms)
if was_healthy then
  return {'OK'}
end
local recovered = unhealthy(endpoint)
if recovered or not endpoint[at.HEALTHY] or endpoint[at.TARGET] ~= target then
  call('HSET', endpoint_key, field.HEALTHY, now_ms)
end
if recovered then
  call('HSET', endpoint_key, field.RECOVERED, now_ms)
end
call('HDEL', endpoint_key, field.SINCE, field.PERMANENT, field.REFUSED_URL, field.CHANGED)
call('PEXPIRE', endpoint_key, const.ENDPOINT_KEEP_MS)
call('ZADD', watched_key, 'NX', now_ms, merchant)
return {'OK'}
