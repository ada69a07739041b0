local session_key, event_key, queue_key, due_key, feed_key = unpack(KEYS)
local history = unpack(ARGV)
-- uses: clock, sessions, holds

-- Reads a session and what rails have reported of it, for a rail. event_key is the event of its end, history that of the feed.

local fields = sessions().read(session_key, event_key, feed_key, 'n', 'h', 'd')
if not fields[RECORD] then
  return {'NOT_FOUND'}
end
local listed, hold, merchant_deleted = unpack(fields, #{SESSION_FIELDS} + 1)
local holder, ends = read_hold(hold)
local held = holder ~= 'nobody' and not fields[STATUS]
return {'OK', fields, listed and call('HGETALL', session_key) or {}, held and format('%d', ends), merchant_deleted and 1 or 0}
