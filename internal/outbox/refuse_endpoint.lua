local endpoint_key, watched_key = unpack(KEYS)
local target, generation, lag, merchant, health, answer = unpack(ARGV)
-- uses: clock, endpoint, target

-- Notes that nothing may be sent to the target of an endpoint, before any event was tried: what an attempt would find, and retrying cannot fix.
-- lib/target.lua describes target, generation and lag. health is the reason in the words of conditions, answer that of an attempt. Since when the endpoint
-- fails is not set: it is disabled for what attempts find only.
-- Returns 'OK', and 1 unless that was known, or the target is outdated.

local endpoint = read_endpoint(endpoint_key)
if target_outdated(endpoint, target, generation, lag) or endpoint[TARGET] == target and (endpoint[PERMANENT] or endpoint[DISABLED]) then
  return {'OK', 0}
end
note_target(endpoint_key, endpoint, target, generation)
call('HSET', endpoint_key, 'permanent', now_ms, 'failed', now_ms, 'reason', health, 'answer', answer)
call('HDEL', endpoint_key, 'changed')
if endpoint[TARGET] ~= target then -- what another target did does not count
  call('HDEL', endpoint_key, 'since', 'disabled', 'cause', 'healthy')
end
call('PEXPIRE', endpoint_key, endpoint_keep_ms)
call('ZADD', watched_key, 'NX', now_ms, merchant)
return {'OK', 1}
