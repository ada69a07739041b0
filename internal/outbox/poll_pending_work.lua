-- uses: clock

-- Reads when there is something to do in buckets. KEYS are of each bucket in turn its due accounts, and its pending sessions by
-- their expiry.
-- Returns {'OK', for each key the ms until its first entry is due; at most 0: it is; const.NOTHING_DUE_MS: there is none}.

-- Returns the time in ms until the first entry is due. A key that cannot be read counts as due: who leases or sweeps there then
-- reports the error, and the other buckets do not wait for it.
local function due_in(key)
  local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first.err then
    return 0
  end
  return first[2] and math.floor(first[2] - now_ms) or const.NOTHING_DUE_MS
end

local due_keys = {}
for i = 1, #KEYS, 2 do
  due_keys[#due_keys + 1] = KEYS[i]
end
local no_events = redis.pcall('EXISTS', unpack(due_keys)) == 0 -- one command instead of one a bucket

local work = {'OK'}
for i, key in ipairs(KEYS) do
  work[i + 1] = no_events and i % 2 == 1 and const.NOTHING_DUE_MS or due_in(key)
end
return work
