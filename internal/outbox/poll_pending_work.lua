-- Reads what there is to do in buckets.
-- KEYS are of each bucket in turn its due merchants, its pending sessions by their expiry, its watched endpoints, and its
-- merchants with blocked addresses.

-- For how long the first entry has been due; -1: it is not, or there is none. What cannot be read counts as due: then the one who
-- has to do with it reports that, and the other buckets do not wait for it.
local function overdue(key)
  local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first.err then
    return 0
  end
  return first[2] and math.max(-1, now_ms - first[2]) or -1
end

local work = {'OK'}
for i = 1, #KEYS, 4 do
  local due_key, expiry_key, watched_key, blocked_key = unpack(KEYS, i, i + 3)
  work[i + 1] = overdue(due_key)
  work[i + 2] = overdue(expiry_key)
  work[i + 3] = call('EXISTS', watched_key)
  work[i + 4] = call('EXISTS', blocked_key)
end
return work
