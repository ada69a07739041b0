-- uses: clock

-- Counts the receipts of each bucket. KEYS are their lists, one of each bucket.
-- Returns {'OK', for each bucket how many are due, and how many there are}. What cannot be read has none.

local counts = {'OK'}
local none = redis.pcall('EXISTS', unpack(KEYS)) == 0 -- one command instead of two a bucket
for _, receipts_key in ipairs(KEYS) do
  local due, all = not none and redis.pcall('ZCOUNT', receipts_key, '-inf', now_ms), not none and redis.pcall('ZCARD', receipts_key)
  counts[#counts + 1] = type(due) == 'number' and due or 0
  counts[#counts + 1] = type(all) == 'number' and all or 0
end
return counts
