-- Reads when API keys of one bucket were last used. Runs without the prelude.
-- KEYS are their last uses.

return redis.call('MGET', unpack(KEYS))
