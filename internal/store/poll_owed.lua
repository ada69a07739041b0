local keep = unpack(ARGV, 1, 1)
-- uses: clock

-- Counts the refunds that are owed. KEYS are two lists of each bucket: of payments to be refunded, and of open requests.
-- keep is how long they are listed in ms. Behind it are ages in ms, the highest first.
-- Returns {'OK', for each key, for each age, how many have waited for so long}. What cannot be read has none.

local counts, oldest = {'OK'}, format('(%d', now_ms - keep)
local none = redis.pcall('EXISTS', unpack(KEYS)) == 0 -- one command instead of one a bucket and age
for _, owed_key in ipairs(KEYS) do
  for i = 2, #ARGV do
    local count = not none and redis.pcall('ZCOUNT', owed_key, oldest, format('%d', now_ms - ARGV[i]))
    counts[#counts + 1] = type(count) == 'number' and count or 0
  end
end
return counts
