local session_key, ended_key, queue_key, due_key, feed_key = unpack(KEYS)
local history = unpack(ARGV)
-- uses: clock, sessions

-- Reads the session of a repeated Idempotency-Key. ended_key is the event of its end, history is of the feed.
-- Returns {'OK', fields of the session}, or {'CORRUPT'} if it is lost: a second charge is the one answer that must not be given.

local fields = open_sessions(queue_key, due_key, history).read(session_key, ended_key, feed_key)
return fields[at.RECORD] and {'OK', fields} or {'CORRUPT'}
