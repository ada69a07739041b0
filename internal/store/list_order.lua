local rate_key, override_key, order_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, session_prefix = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, surcharge, list_order

-- Lists the newest sessions of an order, for a merchant. lib/admission describes rate_key, override_key, last_use_key and the first
-- four arguments, lib/list_order the others. Each const.ORDER_SESSIONS_PER_REQUEST sessions are charged as one more request.
-- Returns '<result><quota>', or {'OK<quota>', 1 if there are more, the random part of the id and the fields of each session}.

if result then
  return result .. quota
end
local more, rows = list_order(order_key, session_prefix)
local requests = math.floor(#rows / 2 / const.ORDER_SESSIONS_PER_REQUEST)
return {'OK' .. surcharge(rate_key, tat, cost, burst, requests), more, rows}
