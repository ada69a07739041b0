local order_key, queue_key, due_key, feed_key = unpack(KEYS, 1, 4)
local session_prefix, history = unpack(ARGV)
-- uses: clock, sessions, list_order

-- Expires sessions of an order that are due, and then lists the newest ones. lib/list_order describes order_key and session_prefix.
-- Behind the named keys are the keys of each session that may be due and of the event of its end, in turn.
-- Returns {the time in ms, 1 if there are more, the random part of the id and the fields of each session}.

local sessions = open_sessions(queue_key, due_key, history)
for i = 5, #KEYS, 2 do
  sessions.read(KEYS[i], KEYS[i + 1], feed_key)
end
return {format('%d', now_ms), list_order(order_key, session_prefix)}
