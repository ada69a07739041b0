local account_requested_key = unpack(KEYS)
local age, keep = unpack(ARGV)
-- uses: clock

-- Counts the open requests of a merchant that have waited for at least age, and finds the oldest of them. account_requested_key lists
-- them for keep. Both are in ms.
-- Returns {'OK', how many, the oldest '<session id> <refund id>', or false: there is none}. A list that cannot be read has none.

local from, to = format('(%d', now_ms - keep), format('%d', now_ms - age)
local count = redis.pcall('ZCOUNT', account_requested_key, from, to)
if type(count) ~= 'number' or count == 0 then
  return {'OK', 0, false}
end
return {'OK', count, call('ZRANGE', account_requested_key, from, to, 'BYSCORE', 'LIMIT', 0, 1)[1]}
