-- Records that an API key was rotated, unless that was reported before.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event, KEYS[4] holds when the key reported last was issued, if any.
-- Not its generation, which may repeat after a record was lost.
-- ARGV[1] is when this one was issued, ARGV[2] how long to keep that, both in ms, ARGV[3] '1' to record the event even if none was reported of
-- this key before, ARGV[4] the merchant id, from ARGV[5] on the event's fields, name and value in turn.

local reported = call('GET', KEYS[4])
local last = tonumber(reported)
if reported and not last then
  return {'CORRUPT'}
end
if last and last >= tonumber(ARGV[1]) then
  call('PEXPIRE', KEYS[4], ARGV[2])
  return {'OK', 0}
end
local recorded = last or ARGV[3] == '1'
if recorded then
  events.record(KEYS[3], ARGV[4], {unpack(ARGV, 5)})
end
call('SET', KEYS[4], ARGV[1], 'PX', ARGV[2])
return {'OK', recorded and 1 or 0}
