local endpoint_key, watched_key = unpack(KEYS)
local merchant = unpack(ARGV)
-- uses: clock

-- Forgets an endpoint of a merchant that is gone. watched_key lists the endpoints with something to report.
-- Returns {'OK'}.

call('DEL', endpoint_key)
call('ZREM', watched_key, merchant)
return {'OK'}
