local expiry_key = unpack(KEYS)
local limit, expiry_queue_prefix = unpack(ARGV)
-- uses: clock

-- Lists sessions that may be overdue, the longest overdue first. Only this script knows the expiry queues, so their keys are not
-- declared; it only reads them.
-- expiry_key has when the sweep must examine an entry: an expiry queue, named by the lifetime of its sessions in ms, or a single
-- session, named by its key, that could not be read in its turn. limit is how many sessions at most.
-- Returns {'OK', {name of the entry, since when it is due in ms, the first sessions of a queue} for each}.

local left, rows = tonumber(limit), {}
local overdue = call('ZRANGEBYSCORE', expiry_key, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, limit)
for i = 1, #overdue, 2 do
  local name, entries = overdue[i], {}
  if left <= 0 then
    break
  elseif string.find(name, '^%d+$') then
    local found = redis.pcall('LRANGE', expiry_queue_prefix .. name, 0, left - 1)
    entries = found.err and {} or found -- sweep_queue reports the error
  end
  left = left - math.max(1, #entries)
  rows[#rows + 1] = {name, overdue[i + 1], entries}
end
return {'OK', rows}
