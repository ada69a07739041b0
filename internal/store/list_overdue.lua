-- Lists sessions that may be overdue, the longest overdue first. They and the expiry queues are only read, as they are known here alone.
-- KEYS[1] says when the sweep must look: at an expiry queue, named by the lifetime of its sessions in ms, or at a single session, named
-- by its key, that could not be read in its turn. ARGV[1] how many sessions to list, ARGV[2] what the keys of expiry queues begin with.

local left, rows = tonumber(ARGV[1]), {}
local overdue = call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #overdue, 2 do
  local name, entries = overdue[i], {}
  if left <= 0 then
    break
  elseif string.find(name, '^%d+$') then
    local found = redis.pcall('LRANGE', ARGV[2] .. name, 0, left - 1)
    entries = found.err and {} or found -- sweep_queue says what is wrong with it
  end
  left = left - math.max(1, #entries)
  rows[#rows + 1] = {name, overdue[i + 1], entries}
end
return {'OK', rows}
