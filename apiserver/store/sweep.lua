-- Expires sessions whose time is over, the longest overdue first.
-- KEYS[1] is the zset of pending sessions, ARGV[1] how many to look at.

-- Looks at one session that should be overdue, and says what became of it. That zset is an index only: what the
-- session itself says counts.
local function sweep(id)
  local key = space .. 'session:' .. id
  local fields = call('HMGET', key, 's', 'x', 'e')
  if expire_if_due(key, fields) then
    return 'expired'
  end
  local expires = tonumber(fields[2])
  if fields[1] == 'PENDING' and expires and expires > now_ms then
    call('ZADD', KEYS[1], expires, id)
  elseif fields[3] or not (fields[1] or fields[2]) then
    call('ZREM', KEYS[1], id) -- it has ended, or is gone
  else
    return 'corrupt'
  end
end

local overdue = call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local count = {expired = 0, corrupt = 0}
for i = 1, #overdue, 2 do
  local ok, outcome = pcall(sweep, overdue[i])
  if not ok then
    -- One key of another type must not keep the others waiting. Any other failure is that of the server.
    local message = type(outcome) == 'table' and outcome.err or tostring(outcome)
    if not string.find(message, 'WRONGTYPE', 1, true) then
      error(outcome, 0)
    end
    outcome = 'corrupt'
  end
  if outcome == 'corrupt' then
    call('ZADD', KEYS[1], now_ms + 3600000, overdue[i]) -- an hour from now somebody may have mended it
  end
  if outcome then
    count[outcome] = count[outcome] + 1
  end
end
return {'OK', count.expired, count.corrupt, #overdue / 2, overdue[2] and now_ms - overdue[2] or 0}
