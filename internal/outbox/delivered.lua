-- Ends an event that was delivered, or that nobody wants.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event, KEYS[4] the merchant's endpoint if it was delivered.
-- ARGV[1] the leased event as the queue has it.

-- include: prelude
local queue_key, due_key = KEYS[1], KEYS[2]
-- include: queue
-- include: endpoint

if not release(ARGV[1]) then
  return {'STALE'}
end
call('DEL', KEYS[3])
if KEYS[4] then
  local endpoint = read_endpoint(KEYS[4])
  if endpoint[2] and not endpoint[3] then -- it failed, but not for long enough to be disabled
    if endpoint[5] then
      call('HDEL', KEYS[4], 'since')
    else
      call('DEL', KEYS[4])
    end
  end
end
return {'OK'}
