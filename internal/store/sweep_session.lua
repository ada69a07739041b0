local expiry_key, queue_key, due_key, session_key, event_key, feed_key = unpack(KEYS)
local name, history = unpack(ARGV)
-- uses: clock, sessions, sweep

-- Expires a session that is listed in expiry_key itself, under that name. event_key is the event of its end.

local outcome, expires = examine(name, session_key, event_key, feed_key)
if outcome == 'waits' then
  call('ZADD', expiry_key, expires, name)
elseif outcome ~= 'corrupt' then
  call('ZREM', expiry_key, name)
end
return {'OK', expired, corrupt, examined, oldest}
