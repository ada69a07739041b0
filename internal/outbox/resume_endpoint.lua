-- Forgets how an endpoint fared at another target, so that events are sent to it (again).
-- KEYS[1] is the endpoint, KEYS[2] the bucket's watched endpoints; ARGV[1] the target, '' for the present one of a disabled endpoint,
-- ARGV[2] the merchant id.

local endpoint = read_endpoint(KEYS[1])
local target = ARGV[1] ~= '' and ARGV[1] or endpoint[DISABLED] and endpoint[TARGET]
if not target or not endpoint[TARGET] or ARGV[1] == endpoint[TARGET] then
  return {'OK', 0}
end
call('HDEL', KEYS[1], 'since', 'permanent', 'disabled', 'cause', 'healthy')
call('HSET', KEYS[1], 'target', target, 'changed', now_ms)
if unhealthy(endpoint) then
  call('HSET', KEYS[1], 'recovered', now_ms)
end
call('PEXPIRE', KEYS[1], endpoint_keep_ms)
call('ZADD', KEYS[2], now_ms, ARGV[2])
return {'OK', 1}
