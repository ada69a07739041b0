-- Admits a request that needs nothing else of Redis.

local stored = call('MGET', KEYS[1], KEYS[2], KEYS[3])
local refusal, backlog, used = admit(stored[1], stored[2], stored[3])
return refusal or {'OK', now_us, backlog, used}
