local endpoint_key, watched_key = unpack(KEYS)
local target, generation, lag, merchant = unpack(ARGV)
-- uses: clock, endpoint, target

-- Forgets the health of an endpoint at another target, so that events are sent to it (again), unless that is outdated. An empty target is the present
-- one of a disabled endpoint. lib/target.lua describes generation and lag.
-- Returns 'OK', and 1 if the health is forgotten.

local endpoint = read_endpoint(endpoint_key)
local new_target = target ~= '' and target or endpoint[DISABLED] and endpoint[TARGET]
if not new_target or not endpoint[TARGET] or target == endpoint[TARGET] or target_outdated(endpoint, target, generation, lag) then
  return {'OK', 0}
end
call('HDEL', endpoint_key, 'since', 'permanent', 'disabled', 'cause', 'healthy')
note_target(endpoint_key, endpoint, new_target, generation)
call('HSET', endpoint_key, 'changed', now_ms)
if unhealthy(endpoint) then
  call('HSET', endpoint_key, 'recovered', now_ms)
end
call('PEXPIRE', endpoint_key, endpoint_keep_ms)
call('ZADD', watched_key, now_ms, merchant)
return {'OK', 1}
