-- Admits a request that needs nothing else of Redis.

local refusal, backlog, used = admit(unpack(call('MGET', KEYS[1], KEYS[2], KEYS[3])))
return refusal or {'OK', now_us, backlog, used}
