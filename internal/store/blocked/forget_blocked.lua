local merchants_key, requests_key, seen_key, reported_key = unpack(KEYS)
local merchant = unpack(ARGV)
-- uses: clock

-- Forgets the blocked addresses of a merchant that is gone. add_blocked and report_blocked describe the keys.
-- Returns {'OK'}.

call('DEL', requests_key, seen_key, reported_key)
call('ZREM', merchants_key, merchant)
return {'OK'}
