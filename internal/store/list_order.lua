local rate_key, override_key, order_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, session_prefix = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, list_order

-- Lists the newest sessions of an order, for a merchant.

if result then
  return result .. quota
end
return {'OK' .. quota, list_order()}
