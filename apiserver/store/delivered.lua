-- Ends an event that was delivered, or that nobody wants.
-- KEYS[1] is the bucket's due events, KEYS[2] the event, KEYS[3] the merchant's endpoint if it was delivered.
-- ARGV[1] the event's id, ARGV[2] the token of the lease.

-- include: prelude
-- include: dead
-- include: endpoint

if not held(KEYS[2], ARGV[2]) then
  return {'STALE'}
end
call('ZREM', KEYS[1], ARGV[1])
call('DEL', KEYS[2])
if KEYS[3] then
  local endpoint = read_endpoint(KEYS[3])
  if endpoint[2] and not endpoint[3] then -- it failed, but not for long enough to be disabled
    if endpoint[5] then
      call('HDEL', KEYS[3], 'since')
    else
      call('DEL', KEYS[3])
    end
  end
end
return {'OK'}
