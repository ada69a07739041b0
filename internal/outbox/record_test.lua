-- Records the event of a test, unless its trigger was the last one recorded, or its event is still there.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event, KEYS[4] holds the trigger recorded last, if any.
-- ARGV[1] is this trigger, ARGV[2] how long to keep it in ms, ARGV[3] the merchant id, from ARGV[4] on the event's fields, name and
-- value in turn.

local recorded = call('GET', KEYS[4]) ~= ARGV[1] and call('EXISTS', KEYS[3]) == 0
if recorded then
  events.record(KEYS[3], ARGV[3], {unpack(ARGV, 4)})
end
call('SET', KEYS[4], ARGV[1], 'PX', ARGV[2])
return {'OK', recorded and 1 or 0}
