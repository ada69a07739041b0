local endpoint_key, watched_key = unpack(KEYS)
local target, generation, lag, merchant, health, answer = unpack(ARGV)
-- uses: clock, endpoint, full, target

-- Notes that nothing may be sent to the target of an endpoint, before any event was tried: an attempt would find that, and retrying
-- cannot fix it. It does not set since when the endpoint fails: only attempts disable an endpoint.
-- watched_key lists the endpoints with something to report. lib/target describes target, generation and lag. health is the reason
-- in the words of conditions, answer that of an attempt.
-- Returns {'OK', 1 if the refusal is new; 0 if it was known, or the target is outdated}.

local endpoint = read_endpoint(endpoint_key)
local known = endpoint[at.TARGET] == target and (endpoint[at.REFUSED_URL] or endpoint[at.DISABLED])
if known or target_outdated(endpoint, target, generation, lag) then
  return {'OK', 0}
end
write_when_full('HDEL', endpoint_key) -- what is wrong with a webhook is shown while its events fill Redis
note_target(endpoint_key, endpoint, target, generation)
call('HSET', endpoint_key, field.REFUSED_URL, now_ms, field.PERMANENT, now_ms)
call('HSET', endpoint_key, field.FAILED, now_ms, field.FAILED_REASON, health, field.ANSWER, answer)
call('HDEL', endpoint_key, field.CHANGED)
if endpoint[at.TARGET] ~= target then -- what another target did does not count
  call('HDEL', endpoint_key, field.SINCE, field.DISABLED, field.CAUSE, field.HEALTHY)
end
call('PEXPIRE', endpoint_key, const.ENDPOINT_KEEP_MS)
call('ZADD', watched_key, 'NX', now_ms, merchant)
return {'OK', 1}
