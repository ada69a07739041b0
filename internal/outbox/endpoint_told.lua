-- Remembers that it was passed on that an endpoint is disabled or resumed, unless that has changed since.
-- KEYS[1] is the endpoint, KEYS[2] the bucket's troubled endpoints.
-- ARGV[1] and ARGV[2] since when it is disabled and resumed, '' for not; ARGV[3] the merchant id.

-- include: prelude
-- include: endpoint

local endpoint = read_endpoint(KEYS[1])
if (endpoint[3] or '') ~= ARGV[1] or (endpoint[5] or '') ~= ARGV[2] then
  return {'OK'}
end
if endpoint[3] then
  call('HSET', KEYS[1], 'reported', 1)
  return {'OK'}
end
-- Resumed, and all is said: but for failures since, it is an endpoint like any other.
call('HDEL', KEYS[1], 'resumed')
if not endpoint[2] then
  call('DEL', KEYS[1])
end
call('ZREM', KEYS[2], ARGV[3])
return {'OK'}
