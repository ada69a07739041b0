local session_key, ended_key, queue_key, due_key, feed_key = unpack(KEYS)
local history = unpack(ARGV)
-- uses: clock, sessions, public_session

-- Reads what a payer may see of a session, without a limit. ended_key is the event of the session's end, history is of the feed.
-- Returns what public_session returns.

return public_session(session_key, ended_key, feed_key, queue_key, due_key, history, ' ' .. clock[1] .. ' ' .. clock[2] .. ' 0')
