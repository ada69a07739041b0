local rate_key, session_key, event_key, queue_key, due_key, feed_key = unpack(KEYS)
local cost, burst, history = unpack(ARGV)
local tat, override, known_key, flags = redis.call('GET', rate_key), false, '', ''
-- uses: clock, admission, sessions, public_session

-- Reads what a payer may see of a session; any caller with the id is admitted. event_key is the event of its end, history that of the feed.

return reply
