-- Reads when API keys were last used: the values of KEYS.

return redis.call('MGET', unpack(KEYS))
