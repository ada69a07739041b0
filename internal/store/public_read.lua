local rate_key, session_key, ended_key, queue_key, due_key, feed_key = unpack(KEYS)
local cost, burst, history = unpack(ARGV)
local tat, override, known_key, flags = redis.call('GET', rate_key), false, '', ''
-- uses: clock, admission, sessions, public_session

-- Reads what a payer may see of a session; any caller with the id is admitted.
-- lib/admission describes rate_key, cost and burst. ended_key is the event of the session's end, history is of the feed.
-- Returns 'LIMITED<quota>', or what public_session returns.

return result and result .. quota or public_session(session_key, ended_key, feed_key, queue_key, due_key, history, quota)
