-- Reads the session of a repeated Idempotency-Key, and expires it if it is due.
-- KEYS[1] is the session, KEYS[2] the event that tells of its end, KEYS[3] the bucket's queue, KEYS[4] its due merchants.

-- include: prelude
local queue_key, due_key = KEYS[3], KEYS[4]
-- include: queue
-- include: event
-- include: expiry
local fields = read_session(KEYS[1], KEYS[2])
if not fields[4] then
  return {'CORRUPT'} -- the original is lost; a second charge is the one answer that must not be given
end
return {'OK', fields}
