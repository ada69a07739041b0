local merchants_key, requests_key, seen_key, reported_key = unpack(KEYS)
local merchant = unpack(ARGV)
-- uses: clock

-- Forgets the blocked addresses of a merchant that is gone.
-- merchants_key has the bucket's merchants with blocked addresses.

call('DEL', requests_key, seen_key, reported_key)
call('ZREM', merchants_key, merchant)
return {'OK'}
