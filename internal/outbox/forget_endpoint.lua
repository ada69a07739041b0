local endpoint_key, watched_key = unpack(KEYS)
local merchant = unpack(ARGV)
-- uses: clock

-- Forgets an endpoint.

call('DEL', endpoint_key)
call('ZREM', watched_key, merchant)
return {'OK'}
