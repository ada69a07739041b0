local queue_key, due_key, event_key, last_key, feed_key = unpack(KEYS)
local issued, keep, unseen, account, event, history = unpack(ARGV)
-- uses: clock, queue, feed

-- Records that an API key was rotated, unless that was reported before.
-- last_key holds when the key reported last was issued, if any. Not its generation, which may repeat after a record was lost.
-- issued is when this key was issued, keep how long to keep that, both in ms; unseen is 'yes' to record the event even if none was
-- reported of this ApiKey before. event is the event as it is stored, history that of the feed.
-- Returns {'CORRUPT'}: last_key cannot be read; or {'OK', 1 if the event was recorded}.

local reported = call('GET', last_key)
local last = tonumber(reported)
if reported and not last then
  return {'CORRUPT'}
end
if last and last >= tonumber(issued) then
  call('PEXPIRE', last_key, keep)
  return {'OK', 0}
end
local recorded = last or unseen == 'yes'
if recorded then
  local events = open_queue(queue_key, due_key)
  append_to_feed(events, feed_key, history, event, '-', account, function()
    events.record(event_key, account, event)
    call('SET', last_key, issued, 'PX', keep)
  end)
else
  call('SET', last_key, issued, 'PX', keep)
end
return {'OK', recorded and 1 or 0}
