local rate_key, override_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key, last_use_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission

-- Admits a request that needs nothing else. lib/admission describes keys and arguments.
-- Returns '<result><quota>', or 'OK<quota> <last uses of the ApiKey before this request>'.

return result and result .. quota or 'OK' .. quota .. ' ' .. (stored[3] or '')
