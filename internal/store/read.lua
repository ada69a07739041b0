-- Reads a session for its merchant.
-- KEYS[3] is the session, KEYS[4] the event that tells of its end, KEYS[5] the bucket's queue, KEYS[6] its due merchants.

-- include: prelude
local stored = call('MGET', KEYS[1], KEYS[2])
-- include: admission
local fields = call('HMGET', KEYS[3], 's', 'x', 'e', 'f', 'u', 'r', 'y', 'w') -- as read_session does
-- include: due
if due then
  local queue_key, due_key = KEYS[5], KEYS[6]
  -- include: queue
  -- include: event
  -- include: expiry
  expire_if_due(KEYS[3], KEYS[4], fields)
end
local head = 'OK '
-- include: admitted
return {head, fields}
