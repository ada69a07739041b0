-- Records that an API key was rotated, unless that was told before.
-- KEYS[1] holds the generation told last, if any, KEYS[2] is the event, KEYS[3] the bucket's queue, KEYS[4] its due merchants.
-- ARGV[1] is this generation, ARGV[2] how long to keep it in ms, ARGV[3] '1' to record the event even if none was told of
-- this key before, ARGV[4] the merchant id, from ARGV[5] on the event's fields, name and value in turn.

-- include: prelude
local queue_key, due_key = KEYS[3], KEYS[4]
-- include: queue
-- include: event
local told = call('GET', KEYS[1])
local last = tonumber(told)
if told and not last then
  return {'CORRUPT'}
end
if last and last >= tonumber(ARGV[1]) then
  call('PEXPIRE', KEYS[1], ARGV[2])
  return {'OK', 0}
end
local recorded = last or ARGV[3] == '1'
if recorded then
  record_event(KEYS[2], ARGV[4], {unpack(ARGV, 5)})
end
call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'OK', recorded and 1 or 0}
