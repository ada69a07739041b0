local rate_key, override_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission

-- Admits a rotation by the current key. rate_key is that of the ApiKey's rotations.

return result and result .. quota or 'OK' .. quota
