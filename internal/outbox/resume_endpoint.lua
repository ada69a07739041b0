local endpoint_key, watched_key = unpack(KEYS)
local target, merchant = unpack(ARGV)
-- uses: clock, endpoint

-- Forgets the health of an endpoint at another target, so that events are sent to it (again). An empty target is the present one of a disabled
-- endpoint.

local endpoint = read_endpoint(endpoint_key)
local new_target = target ~= '' and target or endpoint[DISABLED] and endpoint[TARGET]
if not new_target or not endpoint[TARGET] or target == endpoint[TARGET] then
  return {'OK', 0}
end
call('HDEL', endpoint_key, 'since', 'permanent', 'disabled', 'cause', 'healthy')
call('HSET', endpoint_key, 'target', new_target, 'changed', now_ms)
if unhealthy(endpoint) then
  call('HSET', endpoint_key, 'recovered', now_ms)
end
call('PEXPIRE', endpoint_key, endpoint_keep_ms)
call('ZADD', watched_key, now_ms, merchant)
return {'OK', 1}
