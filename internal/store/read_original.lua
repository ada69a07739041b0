-- Reads the session of a repeated Idempotency-Key. One that is lost is corrupt: a second charge is the one answer that must not be given.
-- KEYS[1] is the session, KEYS[2] the event of its end, KEYS[3] the bucket's queue, KEYS[4] its due merchants, KEYS[5] the feed;
-- ARGV[1] its history.

local fields = sessions(KEYS[3], KEYS[4], ARGV[1]).read(KEYS[1], KEYS[2], KEYS[5])
return fields[RECORD] and {'OK', fields} or {'CORRUPT'}
