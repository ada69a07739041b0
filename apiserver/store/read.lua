-- Reads a session for its merchant.
-- KEYS[4] is the session.

-- include: prelude
local stored = call('MGET', KEYS[1], KEYS[2], KEYS[3])
-- include: admission
local fields = call('HMGET', KEYS[4], 's', 'x', 'e', 'f', 'u', 'r', 'y', 'w') -- as read_session does
-- include: due
if due then
  -- include: event
  -- include: expiry
  expire_if_due(KEYS[4], fields)
end
return {'OK ' .. admitted, fields}
