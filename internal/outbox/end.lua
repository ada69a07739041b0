-- Ends an event that was delivered, or that nobody wants.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event, KEYS[4] the merchant's endpoint if it was delivered.
-- ARGV[1] the leased event as the queue has it.

local endpoint_key = KEYS[4]
if not events.release(ARGV[1]) then
  return {'STALE'}
end
call('DEL', KEYS[3])
if endpoint_key then
  local endpoint = read_endpoint(endpoint_key)
  if endpoint[SINCE] and not endpoint[DISABLED] then -- it failed, but not for long enough to be disabled
    if endpoint[RESUMED] then
      call('HDEL', endpoint_key, 'since')
    else
      call('DEL', endpoint_key)
    end
  end
end
return {'OK'}
