-- Tells what there is to do in buckets, and changes nothing.
-- KEYS: of each bucket in turn its due merchants, its pending sessions by their expiry, and its troubled endpoints.

-- include: prelude

-- For how long the first entry has been due; -1: it is not, or there is none. What cannot be read counts as due, for then whoever
-- has to do with it says so, and the other buckets do not wait for it.
local function overdue(key)
  local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first.err then
    return 0
  end
  return first[2] and math.max(-1, now_ms - first[2]) or -1
end

local outlook = {'OK'}
for i = 1, #KEYS, 3 do
  outlook[i + 1] = overdue(KEYS[i])
  outlook[i + 2] = overdue(KEYS[i + 1])
  outlook[i + 3] = call('EXISTS', KEYS[i + 2])
end
return outlook
