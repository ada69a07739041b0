local rate_key = unpack(KEYS)
local cost, burst = unpack(ARGV)
local tat, override, known_key, flags = redis.call('GET', rate_key), false, '', ''
-- uses: clock, admission

-- Only counts a rotation on the internal port.

return result and result .. quota or 'OK' .. quota
