local rate_key = unpack(KEYS)
local cost, burst = unpack(ARGV)
local tat, override, known_key, flags = redis.call('GET', rate_key), false, '', ''
-- uses: clock, admission

-- Counts a rotation on the internal port. lib/admission describes key and arguments.
-- Returns 'LIMITED<quota>' or 'OK<quota>'.

return result and result .. quota or 'OK' .. quota
