local rate_key, override_key, feed_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, history, newest, oldest, kinds, limit = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, surcharge, list_ended

-- Lists ended sessions of a merchant, the newest first, for a request. lib/admission describes rate_key, override_key, last_use_key
-- and the first four arguments, lib/list_ended the others.
-- Returns '<result><quota>', or {'OK<quota>', and the reply of list_ended}.

if result then
  return result .. quota
end
-- Each chunk is a request of the limit. The first one is charged already; of the others it reads as many as there is room for.
local most_chunks = 1 + requests_left(tat, cost, burst)
local last, since, rows, chunks = list_ended(feed_key, history, newest, oldest, kinds, limit, most_chunks)
return {'OK' .. surcharge(rate_key, tat, cost, burst, chunks - 1), last, since, rows}
