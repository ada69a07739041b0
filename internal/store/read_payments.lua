local session_key, event_key, queue_key, due_key, feed_key = unpack(KEYS)
local history = unpack(ARGV)

-- Reads a session and what rails have reported of it, for a rail. event_key is the event of its end, history that of the feed.

local fields = call('HMGET', session_key, SESSION_FIELDS, 'n', 'h', 'k')
if not fields[RECORD] then
  return {'NOT_FOUND'}
end
if not fields[STATUS] and now_ms >= (tonumber(fields[EXPIRES_AT]) or math.huge) then
  sessions().expire_if_due(session_key, event_key, feed_key, fields)
end
local listed, hold, failures = unpack(fields, #{SESSION_FIELDS} + 1)
local ends = 0
if hold and not fields[STATUS] then
  ends = select(2, read_hold(hold))
end
return {'OK', fields, listed and call('HGETALL', session_key) or {}, ends > 0 and format('%d', ends), failures}
