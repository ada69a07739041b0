local endpoint_key, watched_key = unpack(KEYS)
local target, refused, merchant = unpack(ARGV)
-- uses: clock, endpoint

-- Forgets the health of an endpoint that a rule of the platform refused and no rule refuses now. What was tried meanwhile failed
-- because of that rule. A disabled endpoint stays disabled.
-- watched_key lists the endpoints with something to report. target is the refused target, refused the time of its refusal in ms.
-- Returns {'OK', 1 if the health is forgotten; 0 if the endpoint is not as the caller has seen it}.

local endpoint = read_endpoint(endpoint_key)
if endpoint[at.TARGET] ~= target or endpoint[at.REFUSED_URL] ~= refused or endpoint[at.DISABLED] then
  return {'OK', 0}
end
call('HDEL', endpoint_key, field.SINCE, field.PERMANENT, field.REFUSED_URL, field.HEALTHY)
call('HSET', endpoint_key, field.CHANGED, now_ms, field.RECOVERED, now_ms)
call('PEXPIRE', endpoint_key, const.ENDPOINT_KEEP_MS)
call('ZADD', watched_key, 'NX', now_ms, merchant)
return {'OK', 1}
