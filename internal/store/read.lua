local rate_key, override_key, session_key, ended_key, queue_key, due_key, feed_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, history = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, surcharge, sessions

-- Reads a session for its merchant.
-- lib/admission describes rate_key, override_key, last_use_key and the first four arguments. ended_key is the event of the
-- session's end, history is of the feed.
-- Returns '<result><quota>', or {'OK<quota>', fields of the session in the order of const.MERCHANT_FIELDS, without LISTED, and all
-- fields and their names if payments were refused or refunded}. Each const.FIELDS_PER_REQUEST of these are charged as one more request,
-- and none is refused for it: what money has moved is never kept from its merchant.

if result then
  return result .. quota
end
local fields = call('HMGET', session_key, unpack(const.MERCHANT_FIELDS))
local listed = fields[at.LISTED]
if not fields[at.STATUS] and now_ms >= (tonumber(fields[at.EXPIRES_AT]) or math.huge) then
  open_sessions(queue_key, due_key, history).expire_if_due(session_key, ended_key, feed_key, fields)
end
if listed then
  fields[at.LISTED] = false
  local all = call('HGETALL', session_key)
  local requests = math.floor(#all / 2 / const.FIELDS_PER_REQUEST)
  return {'OK' .. surcharge(rate_key, tat, cost, burst, requests), fields, all}
end
return {'OK' .. quota, fields}
