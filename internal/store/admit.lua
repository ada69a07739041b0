-- Admits a request that needs nothing else of Redis, and tells the key's last use before it.
-- KEYS[3] is the key's last use.

-- include: prelude
local stored = call('MGET', KEYS[1], KEYS[2], KEYS[3])
-- include: admission
return 'OK '
-- include: admitted
  .. ' ' .. (stored[3] or '0')
