-- Ends an event that was delivered, or that nobody wants.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event; if it was delivered, KEYS[4] the merchant's endpoint
-- and KEYS[5] the bucket's watched endpoints.
-- ARGV[1] the leased event as the queue has it; if it was delivered, ARGV[2] where to, and ARGV[3] the merchant id.

local endpoint_key, watched_key = KEYS[4], KEYS[5]
if not events.release(ARGV[1]) then
  return {'STALE'}
end
call('DEL', KEYS[3])
if not endpoint_key then
  return {'OK'}
end
local endpoint = read_endpoint(endpoint_key)
if endpoint[DISABLED] then
  return {'OK'} -- only another target ends that
end
call('HSET', endpoint_key, 'delivered', now_ms)
if endpoint[HEALTHY] and not endpoint[SINCE] and endpoint[TARGET] == ARGV[2] then
  return {'OK'} -- it was healthy before
end
local recovered = unhealthy(endpoint)
if recovered or not endpoint[HEALTHY] or endpoint[TARGET] ~= ARGV[2] then
  call('HSET', endpoint_key, 'healthy', now_ms, 'target', ARGV[2])
end
if recovered then
  call('HSET', endpoint_key, 'recovered', now_ms)
end
call('HDEL', endpoint_key, 'since', 'permanent', 'changed')
call('PEXPIRE', endpoint_key, endpoint_keep_ms)
call('ZADD', watched_key, 'NX', now_ms, ARGV[3])
return {'OK'}
