local after, member, limit, keep = unpack(ARGV)
-- uses: clock

-- Lists what a rail owes, the oldest first. KEYS are its lists, one of each bucket. A page begins behind the place (after, member):
-- after is a time in ms, and members of one time are in the order of their bytes. What was listed more than keep ago, in ms, is left
-- out. limit is how many to list of each bucket.
-- Returns {'OK', for each bucket {member, when it was listed in ms, member, ...}, or false: it cannot be read}.

-- Whether a member stands behind another one of the same time: Redis orders them by their bytes, and Lua compares texts as its
-- process's language does.
local function stands_behind(a, b)
  for i = 1, #a do
    local byte, other = string.byte(a, i), string.byte(b, i)
    if byte ~= other then
      return not other or byte > other
    end
  end
  return false
end

local lists, oldest = {'OK'}, format('%d', math.max(after, now_ms - keep))
local none = redis.pcall('EXISTS', unpack(KEYS)) == 0 -- one command instead of one a bucket
for _, refunds_key in ipairs(KEYS) do
  local found, skipped = {}, 0
  repeat
    local page = none and {} or redis.pcall('ZRANGEBYSCORE', refunds_key, oldest, '+inf', 'WITHSCORES', 'LIMIT', skipped, limit)
    if page.err then
      found = false
      break
    end
    for i = 1, #page, 2 do
      if #found < 2 * limit and (tonumber(page[i + 1]) > tonumber(after) or stands_behind(page[i], member)) then
        found[#found + 1], found[#found + 2] = page[i], format('%d', page[i + 1])
      end
    end
    skipped = skipped + limit
  until #page == 0 or #found >= 2 * limit
  lists[#lists + 1] = found
end
return lists
