-- Makes an event a dead letter without an attempt.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event, KEYS[4] the bucket's dead letters.
-- ARGV[1] the leased event as the queue has it, ARGV[2] the reason.

-- include: prelude
local queue_key, due_key = KEYS[1], KEYS[2]
-- include: queue
-- include: dead

if not held(KEYS[3], ARGV[1]) then
  return {'STALE'}
end
bury(KEYS[4], KEYS[3], ARGV[1], ARGV[2])
return {'OK'}
