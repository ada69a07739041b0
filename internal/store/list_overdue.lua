local expiry_key = unpack(KEYS)
local limit, expiry_queue_prefix = unpack(ARGV)
-- uses: clock

-- Lists sessions that may be overdue, the longest overdue first. Only this script knows the expiry queues, so their keys are not
-- declared; it only reads them.
-- expiry_key has when the sweep must examine an entry: an expiry queue, named by the lifetime of its sessions in ms, or a single
-- session, named by its key, that could not be read in its turn. limit is how many sessions at most: all entries have an equal share,
-- as most sessions of a queue may not be due.
-- Returns {'OK', {name of the entry, since when it is due in ms, the first sessions of a queue or the single session} for each}.

local rows = {}
local overdue = call('ZRANGEBYSCORE', expiry_key, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, limit)
local share = math.floor(2 * limit / #overdue)
for i = 1, #overdue, 2 do
  local name, entries = overdue[i], {overdue[i]}
  if string.find(name, '^%d*$') then
    entries = redis.pcall('LRANGE', expiry_queue_prefix .. name, 0, share - 1)
    entries = entries.err and {} or entries -- sweep reports the error
  end
  rows[#rows + 1] = {name, overdue[i + 1], entries}
end
return {'OK', rows}
