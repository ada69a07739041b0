-- Remembers that it was reported that an endpoint is disabled or resumed, unless that has changed since.
-- KEYS[1] is the endpoint, KEYS[2] the bucket's unhealthy endpoints.
-- ARGV[1] and ARGV[2] since when it is disabled and resumed, '' for not; ARGV[3] the merchant id.

local endpoint = read_endpoint(KEYS[1])
if (endpoint[DISABLED] or '') ~= ARGV[1] or (endpoint[RESUMED] or '') ~= ARGV[2] then
  return {'OK'}
end
if endpoint[DISABLED] then
  call('HSET', KEYS[1], 'reported', 1)
  return {'OK'}
end
-- Resumed, and that is reported: but for failures since, it is an endpoint like any other.
call('HDEL', KEYS[1], 'resumed')
if not endpoint[SINCE] then
  call('DEL', KEYS[1])
end
call('ZREM', KEYS[2], ARGV[3])
return {'OK'}
