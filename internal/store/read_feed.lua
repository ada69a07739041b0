local rate_key, override_key, feed_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, after, limit, age = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, surcharge

-- Reads the feed of an account from a cursor on, for a merchant.
-- after is the id of the last entry read, limit how many entries to read, that one among them, age how long they are kept in ms. Returns how many it
-- has tried to read: what the limit of requests has room for.

if result then
  return result .. quota
end
local since = now_ms - age
local aged = tonumber(string.match(after, '^%d+')) < since
limit = math.min(limit, SCANNED_AT_ONCE * (room() + 2) - 1) -- the first 199 are in the price of the request
local entries = call('XRANGE', feed_key, aged and format('%d', since) or after, '+', 'COUNT', limit)
surcharge(math.floor(#entries / SCANNED_AT_ONCE) - 1)
if not aged and entries[1] and entries[1][1] == after then
  return {'OK' .. quota, limit, entries}
end
-- What decides whether an entry is missed.
local oldest = call('XRANGE', feed_key, '-', '+', 'COUNT', 1)[1]
-- XREVRANGE from an id below the oldest entry looks at all entries of the feed, so it is not asked for what has none.
local before = call('XRANGE', feed_key, '-', after, 'COUNT', 1)[1]
before = before and call('XREVRANGE', feed_key, after, '-', 'COUNT', 1)[1]
return {'OK' .. quota, limit, entries, call('XLEN', feed_key), oldest and oldest[1] or '0-0', before and before[1] or '0-0'}
