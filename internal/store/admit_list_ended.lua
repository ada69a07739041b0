local rate_key, override_key, feed_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, history, newest, oldest, kinds, limit = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, surcharge, list_ended

-- Lists ended sessions of a merchant, the newest first, for a request.

if result then
  return result .. quota
end
-- Each chunk is a request of the limit. The first one is charged already; of the others it reads as many as there is room for.
local last, since, rows, chunks = list_ended(1 + room())
surcharge(chunks - 1)
return {'OK' .. quota, last, since, rows}
