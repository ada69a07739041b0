local endpoint_key, watched_key = unpack(KEYS)
local target, merchant, health, answer = unpack(ARGV)
-- uses: clock, endpoint

-- Notes that nothing may be sent to the target of an endpoint, before any event was tried: what an attempt would find, and retrying cannot fix.
-- health is the reason in the words of conditions, answer that of an attempt. Since when the endpoint fails is not set: it is disabled for what
-- attempts find only.

-- Returns 'OK', and 1 unless that was known.
local endpoint = read_endpoint(endpoint_key)
if endpoint[TARGET] == target and (endpoint[PERMANENT] or endpoint[DISABLED]) then
  return {'OK', 0}
end
call('HSET', endpoint_key, 'target', target, 'permanent', now_ms, 'failed', now_ms, 'reason', health, 'answer', answer)
call('HDEL', endpoint_key, 'changed')
if endpoint[TARGET] ~= target then -- what another target did does not count
  call('HDEL', endpoint_key, 'since', 'disabled', 'cause', 'healthy')
end
call('PEXPIRE', endpoint_key, endpoint_keep_ms)
call('ZADD', watched_key, 'NX', now_ms, merchant)
return {'OK', 1}
