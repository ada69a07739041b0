-- Lists sessions whose time may be over, the longest overdue first. They and the lines are only read, for which they are is known
-- here alone.
-- KEYS[1] is the zset that tells what is due; ARGV[1] how many sessions to list.
-- In that zset, by when they are due, are the lines and single sessions. A line is named by the lifetime of its sessions in
-- ms and due when its first one is: they wait in the list behind ':<lifetime>', by their keys and in the order of their creation. A session is
-- there by itself when it could not be read in its turn.

-- include: prelude

local left, entries = tonumber(ARGV[1]), {}
local overdue = call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #overdue, 2 do
  local name, sessions = overdue[i], {}
  if left <= 0 then
    break
  elseif string.find(name, '^%d+$') then
    local line = redis.pcall('LRANGE', KEYS[1] .. ':' .. name, 0, left - 1)
    sessions = line.err and {} or line -- sweep_line.lua says what is wrong with it
  end
  left = left - math.max(1, #sessions)
  entries[#entries + 1] = {name, overdue[i + 1], sessions}
end
return {'OK', entries}
