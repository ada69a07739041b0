-- Records that an API key was rotated, unless that was reported before.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event, KEYS[4] holds when the key reported last was issued, if any.
-- Not its generation, which may repeat after a record was lost. KEYS[5] is the feed.
-- issued is when this one was issued, keep how long to keep that, both in ms; unseen is '1' to record the event even if none was reported of
-- this key before.
local issued, keep, unseen, account, event, history = unpack(ARGV)

local reported = call('GET', KEYS[4])
local last = tonumber(reported)
if reported and not last then
  return {'CORRUPT'}
end
if last and last >= tonumber(issued) then
  call('PEXPIRE', KEYS[4], keep)
  return {'OK', 0}
end
local recorded = last or unseen == '1'
if recorded then
  append_to_feed(KEYS[5], history, event, '-', account, function()
    events.record(KEYS[3], account, event)
    call('SET', KEYS[4], issued, 'PX', keep)
  end)
else
  call('SET', KEYS[4], issued, 'PX', keep)
end
return {'OK', recorded and 1 or 0}
