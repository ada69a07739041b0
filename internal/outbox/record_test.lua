-- Records the event of a test, unless its trigger was the last one recorded, or its event is still there.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event, KEYS[4] holds the trigger recorded last, if any.
-- trigger is this one, keep how long to keep it in ms.
local trigger, keep, account, event = unpack(ARGV)

local recorded = call('GET', KEYS[4]) ~= trigger and call('EXISTS', KEYS[3]) == 0
if recorded then
  events.record(KEYS[3], account, event)
end
call('SET', KEYS[4], trigger, 'PX', keep)
return {'OK', recorded and 1 or 0}
