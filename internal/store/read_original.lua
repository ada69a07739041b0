local session_key, event_key, queue_key, due_key, feed_key = unpack(KEYS)
local history = unpack(ARGV)
-- uses: clock, sessions

-- Reads the session of a repeated Idempotency-Key. One that is lost is corrupt: a second charge is the one answer that must not be given.
-- event_key is the event of its end, history that of the feed.

local fields = sessions().read(session_key, event_key, feed_key)
return fields[RECORD] and {'OK', fields} or {'CORRUPT'}
