local queue_key, due_key, event_key, endpoint_key, watched_key = unpack(KEYS)
local leased, target, generation, lag, merchant = unpack(ARGV)
-- uses: clock, queue, endpoint, target

-- Ends an event. leased is the leased event as the queue has it. The other arguments, and the keys of the endpoint, are given if the event was
-- delivered and says that the endpoint is healthy: target, generation and lag are where it was delivered to, as the caller knows it (target.lua).
-- A former target says nothing about the endpoint.
-- Returns 'STALE' or 'OK'.

if not events.release(leased) then
  return {'STALE'}
end
call('DEL', event_key)
if not endpoint_key then
  return {'OK'}
end
local endpoint = read_endpoint(endpoint_key)
if endpoint[DISABLED] or target_outdated(endpoint, target, generation, lag) then
  return {'OK'} -- only another target enables it
end
note_target(endpoint_key, endpoint, target, generation)
local was_healthy = endpoint[HEALTHY] and not endpoint[SINCE] and not endpoint[PERMANENT] and endpoint[TARGET] == target
if was_healthy and string.sub(endpoint[DELIVERED] or '', 1, -4) == clock[1] then
  return {'OK'} -- people see the time of the last delivery in seconds
end
call('HSET', endpoint_key, 'delivered', now_ms)
if was_healthy then
  return {'OK'}
end
local recovered = unhealthy(endpoint)
if recovered or not endpoint[HEALTHY] or endpoint[TARGET] ~= target then
  call('HSET', endpoint_key, 'healthy', now_ms)
end
if recovered then
  call('HSET', endpoint_key, 'recovered', now_ms)
end
call('HDEL', endpoint_key, 'since', 'permanent', 'changed')
call('PEXPIRE', endpoint_key, endpoint_keep_ms)
call('ZADD', watched_key, 'NX', now_ms, merchant)
return {'OK'}
