-- Reads the feed of an account from a cursor on, for a merchant.
-- KEYS[3] is the feed. after is the id of the last entry read, limit how many entries to read, that one among them, age how long they are kept
-- in ms.

if result then
  return result .. moment
end
local after, limit, age = unpack(ARGV, 5)
local since = now_ms - age
local aged = tonumber(string.match(after, '^%d+')) < since
local entries = call('XRANGE', KEYS[3], aged and format('%d', since) or after, '+', 'COUNT', limit)
if not aged and entries[1] and entries[1][1] == after then
  return {'OK' .. moment, entries}
end
-- What decides whether an entry is missed.
local oldest = call('XRANGE', KEYS[3], '-', '+', 'COUNT', 1)[1]
local before = call('XREVRANGE', KEYS[3], after, '-', 'COUNT', 1)[1]
return {'OK' .. moment, entries, call('XLEN', KEYS[3]), oldest and oldest[1] or '0-0', before and before[1] or '0-0'}
