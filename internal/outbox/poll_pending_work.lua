-- Reads what there is to do in buckets.
-- KEYS: of each bucket in turn its due merchants, its pending sessions by their expiry, its watched endpoints, and its
-- merchants with blocked addresses.

-- For how long the first entry has been due; -1: it is not, or there is none. What cannot be read counts as due, for then whoever
-- has to do with it says so, and the other buckets do not wait for it.
local function overdue(key)
  local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first.err then
    return 0
  end
  return first[2] and math.max(-1, now_ms - first[2]) or -1
end

local work = {'OK'}
for i = 1, #KEYS, 4 do
  work[i + 1] = overdue(KEYS[i])
  work[i + 2] = overdue(KEYS[i + 1])
  work[i + 3] = call('EXISTS', KEYS[i + 2])
  work[i + 4] = call('EXISTS', KEYS[i + 3])
end
return work
