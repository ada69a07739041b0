-- Reads when API keys were last used.
-- KEYS are their last uses.

return redis.call('MGET', unpack(KEYS))
