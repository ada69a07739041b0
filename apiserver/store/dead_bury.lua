-- Makes an event a dead letter without an attempt.
-- KEYS[1] is the bucket's due events, KEYS[2] the event, KEYS[3] the bucket's dead letters.
-- ARGV[1] the event's id, ARGV[2] the token of the lease, ARGV[3] the reason.

-- include: prelude
-- include: dead

if not held(KEYS[2], ARGV[2]) then
  return {'STALE'}
end
bury(KEYS[1], KEYS[3], KEYS[2], ARGV[1], ARGV[3])
return {'OK'}
