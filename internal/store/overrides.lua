-- Reads the overrides of some keys of one bucket. Runs without the prelude.
-- KEYS are the overrides.

return redis.call('MGET', unpack(KEYS))
