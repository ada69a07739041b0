local queue_key, due_key, event_key, last_key = unpack(KEYS)
local trigger, keep, account, event = unpack(ARGV)
-- uses: clock, queue

-- Records the event of a test, unless its trigger was the last one recorded, or its event is still there.
-- last_key holds the trigger recorded last, if any; keep is how long to keep this one in ms. event is the event as it is stored.
-- Returns {'OK', 1 if the event was recorded}.

local recorded = call('GET', last_key) ~= trigger and call('EXISTS', event_key) == 0
if recorded then
  local events = open_queue(queue_key, due_key)
  events.record(event_key, account, event)
  events.publish('-', '-') -- it is in no feed
end
call('SET', last_key, trigger, 'PX', keep)
return {'OK', recorded and 1 or 0}
