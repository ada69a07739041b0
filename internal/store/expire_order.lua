local order_key, queue_key, due_key, feed_key = unpack(KEYS, 1, 4)
local session_prefix, history = unpack(ARGV)
-- uses: clock, sessions, list_order

-- Expires sessions of an order that are due, and then lists the newest ones.
-- Behind the named keys are those of each session that may be due and of the event of its end, in turn.

local s = sessions()
for i = 5, #KEYS, 2 do
  s.read(KEYS[i], KEYS[i + 1], feed_key)
end
return {format('%d', now_ms), list_order()}
