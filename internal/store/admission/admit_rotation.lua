local rate_key, override_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission

-- Admits a rotation by the current key. rate_key is of the ApiKey's rotations; lib/admission describes the other keys and the
-- arguments.
-- Returns '<result><quota>' or 'OK<quota>'.

return result and result .. quota or 'OK' .. quota
