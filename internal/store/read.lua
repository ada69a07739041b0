local rate_key, override_key, session_key, event_key, queue_key, due_key, feed_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, history = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, sessions

-- Reads a session for its merchant, with all of its fields if payments were refused or refunded. event_key is the event of its end, history that of
-- the feed.

if result then
  return result .. quota
end
local fields = call('HMGET', session_key, MERCHANT_FIELDS)
local listed = fields[LISTED]
if not fields[STATUS] and now_ms >= (tonumber(fields[EXPIRES_AT]) or math.huge) then
  sessions().expire_if_due(session_key, event_key, feed_key, fields)
end
if listed then
  fields[LISTED] = false
  return {'OK' .. quota, fields, call('HGETALL', session_key)}
end
return {'OK' .. quota, fields}
