local session_key, event_key, queue_key, due_key, feed_key = unpack(KEYS)
local history = unpack(ARGV)
-- uses: clock, unlimited, sessions, public_session

-- Reads what a payer may see of a session, without a limit. event_key is the event of its end, history that of the feed.

return reply
