local expiry_key, queue_key, due_key, session_key, event_key, feed_key = unpack(KEYS)
local name, history = unpack(ARGV)
-- uses: clock, sessions, sweep

-- Expires a session that is listed in expiry_key itself (list_overdue), under that name. event_key is the event of its end, history
-- is of the feed.
-- Returns what sweep.reply() of lib/sweep returns.

local sweep = new_sweep(expiry_key, open_sessions(queue_key, due_key, history))
local outcome, expires = sweep.examine(name, session_key, event_key, feed_key)
if outcome == 'waits' then
  call('ZADD', expiry_key, expires, name)
elseif outcome ~= 'corrupt' then
  call('ZREM', expiry_key, name)
end
return sweep.reply()
