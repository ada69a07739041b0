local rate_key, override_key, feed_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, after, limit, age = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, surcharge

-- Reads the feed of an account from a cursor on, for a merchant.
-- lib/admission describes rate_key, override_key, last_use_key and the first four arguments. after is the id of the last entry
-- that was read, limit is how many entries to read, that one among them, and age is how long entries are kept in ms.
-- Returns '<result><quota>', or {'OK<quota>', how many entries it has tried to read, as many as the limit of requests has room for,
-- the entries}. If the entry `after` is not the first of them, what says whether an entry was missed follows: how many there are in
-- the feed, the ids of the oldest one and of the last one up to `after`, or 0-0.

if result then
  return result .. quota
end
local since = now_ms - age
local aged = tonumber(string.match(after, '^%d+')) < since
-- Two entries are not listed: the last one that was read, and one that says that there are more.
limit = math.min(limit, const.EVENTS_PER_REQUEST * (requests_left(tat, cost, burst) + 1) + 2)
local entries = call('XRANGE', feed_key, aged and format('%d', since) or after, '+', 'COUNT', limit)
quota = surcharge(rate_key, tat, cost, burst, math.ceil((#entries - 2) / const.EVENTS_PER_REQUEST) - 1)
if not aged and entries[1] and entries[1][1] == after then
  return {'OK' .. quota, limit, entries}
end
local oldest = call('XRANGE', feed_key, '-', '+', 'COUNT', 1)[1]
-- XREVRANGE from an id below the oldest entry looks at all entries of the feed, so it is not asked for what has none.
local before = call('XRANGE', feed_key, '-', after, 'COUNT', 1)[1]
before = before and call('XREVRANGE', feed_key, after, '-', 'COUNT', 1)[1]
return {'OK' .. quota, limit, entries, call('XLEN', feed_key), oldest and oldest[1] or '0-0', before and before[1] or '0-0'}
