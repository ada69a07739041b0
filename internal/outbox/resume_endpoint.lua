-- Lets events be sent again to an endpoint that was disabled for another target.
-- KEYS[1] is the endpoint, KEYS[2] the bucket's unhealthy endpoints; ARGV[1] the target, '' for any, ARGV[2] the merchant id.

local endpoint = read_endpoint(KEYS[1])
if not endpoint[DISABLED] or endpoint[TARGET] == ARGV[1] then
  return {'OK', 0}
end
call('DEL', KEYS[1])
call('HSET', KEYS[1], 'target', ARGV[1], 'resumed', now_ms)
call('PEXPIRE', KEYS[1], endpoint_keep_ms)
call('ZADD', KEYS[2], now_ms, ARGV[2])
return {'OK', 1}
