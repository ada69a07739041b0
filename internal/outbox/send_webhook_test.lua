local queue_key, due_key, event_key, webhook_test_key = unpack(KEYS)
local every, keep, id, account, event = unpack(ARGV)
-- uses: clock, queue

-- Records a test event that a person asked for, unless the merchant's last one was recorded less than `every` ms ago.
-- webhook_test_key is a hash: the id of the event, when it was recorded, and how it was answered (answer_webhook_test); keep is how
-- long to keep it in ms. event is the event as it is stored.
-- Returns {'OK', 1 if the event was recorded}.

local last = tonumber(call('HGET', webhook_test_key, 'at')) or 0
if last <= now_ms and now_ms - last < tonumber(every) then
  return {'OK', 0}
end
call('HSET', webhook_test_key, 'id', id, 'at', now_ms)
call('HDEL', webhook_test_key, 'reason', 'answer', 'took', 'target')
call('PEXPIRE', webhook_test_key, keep)
local events = open_queue(queue_key, due_key)
events.record(event_key, account, event)
events.publish('-', '-') -- it is in no feed
return {'OK', 1}
