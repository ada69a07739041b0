local endpoint_key, watched_key = unpack(KEYS)
local target, generation, lag, merchant = unpack(ARGV)
-- uses: clock, endpoint, target

-- Notes another target of an endpoint, unless that is outdated, and forgets the health at the former one, so that events are sent to
-- it (again). What the former target answers from now on does not count, also if no event was tried yet.
-- watched_key lists the endpoints with something to report. target, generation and lag are as lib/target describes; an empty target
-- is the present one of a disabled endpoint.
-- Returns {'OK', 1 if the health is forgotten}.

local endpoint = read_endpoint(endpoint_key)
local new_target = target ~= '' and target or endpoint[at.DISABLED] and endpoint[at.TARGET]
if not new_target or target == endpoint[at.TARGET] or target_outdated(endpoint, target, generation, lag) then
  return {'OK', 0}
end
call('HDEL', endpoint_key, field.SINCE, field.PERMANENT, field.REFUSED_URL, field.DISABLED, field.CAUSE, field.HEALTHY)
note_target(endpoint_key, endpoint, new_target, generation)
call('PEXPIRE', endpoint_key, const.ENDPOINT_KEEP_MS)
if not (endpoint[at.DELIVERED] or endpoint[at.FAILED] or endpoint[at.DISABLED]) then
  return {'OK', 0} -- there is nothing to forget, and nothing to report before the first event
end
call('HSET', endpoint_key, field.CHANGED, now_ms)
if unhealthy(endpoint) then
  call('HSET', endpoint_key, field.RECOVERED, now_ms)
end
call('ZADD', watched_key, now_ms, merchant)
return {'OK', 1}
