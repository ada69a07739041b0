-- Admits a request that needs nothing else of Redis.

-- include: prelude
local stored = call('MGET', KEYS[1], KEYS[2], KEYS[3])
-- include: admission
return 'OK ' .. admitted
