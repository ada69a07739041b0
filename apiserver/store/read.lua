-- Reads a session for its merchant.
-- KEYS[3] is the session.

-- include: prelude
local stored = call('MGET', KEYS[1], KEYS[2])
-- include: admission
local fields = call('HMGET', KEYS[3], 's', 'x', 'e', 'f', 'u', 'r', 'y', 'w') -- as read_session does
-- include: due
if due then
  -- include: event
  -- include: expiry
  expire_if_due(KEYS[3], fields)
end
local head = 'OK '
-- include: admitted
return {head, fields}
