-- Expires sessions whose time is over, the longest overdue first.
-- KEYS[1] is the zset that tells what is due; ARGV[1] how many sessions to look at.
-- In that zset, by when they are due, are the lines and single sessions. A line is named by the lifetime of its sessions in
-- ms and due when its first one is: they wait in the list behind ':<lifetime>', by their keys and in the order of their creation. A session is
-- there by itself when it could not be read in its turn.

-- include: prelude
-- include: event
-- include: expiry

local left = tonumber(ARGV[1]) -- to look at
local expired, corrupt, looked, oldest = 0, 0, 0, 0

-- Looks at one session that should be overdue, and says what became of it. Both zset and lines are an index only: what the
-- session itself says counts. Its expiresAt comes with it, if it counts.
local function examine(id)
  local key = space .. 'session:' .. id
  local fields = call('HMGET', key, 's', 'x', 'e', 'f')
  if expire_if_due(key, fields) then
    return 'expired', tonumber(fields[2])
  end
  local expires = tonumber(fields[2])
  if not fields[1] and not fields[3] and expires and expires > now_ms then
    return 'waits', expires
  elseif not fields[3] and (fields[1] or fields[2] or fields[4]) then
    return 'corrupt'
  end
  return 'over' -- it has ended, or is gone
end

-- A key of another type is the misfortune of that one. Any other failure is that of the server, and ends the sweep.
local function must_be_of_another_type(failure)
  local message = type(failure) == 'table' and failure.err or tostring(failure)
  if not string.find(message, 'WRONGTYPE', 1, true) then
    error(failure, 0)
  end
end

-- Looks at one session, and puts off for an hour what cannot be read: somebody may have mended it by then. One that is
-- broken must keep neither the others waiting nor the sweeper busy.
local function look(id)
  left, looked = left - 1, looked + 1
  local ok, outcome, expires = pcall(examine, id)
  if not ok then
    must_be_of_another_type(outcome)
    outcome = 'corrupt'
  end
  if outcome == 'expired' then
    expired, oldest = expired + 1, math.max(oldest, now_ms - expires)
  elseif outcome == 'corrupt' then
    corrupt = corrupt + 1
    call('ZADD', KEYS[1], now_ms + 3600000, id)
  end
  return outcome, expires
end

-- Looks at a line from its first session on.
local function serve(lifetime, since)
  local line = KEYS[1] .. ':' .. lifetime
  local keys, served, due_at = redis.pcall('LRANGE', line, 0, left - 1), 0, since
  if keys.err then
    must_be_of_another_type(keys)
    left, looked, corrupt = left - 1, looked + 1, corrupt + 1
    call('ZADD', KEYS[1], now_ms + 3600000, lifetime)
    return
  end
  local full = left > 0 and #keys == left
  for _, key in ipairs(keys) do
    local outcome, expires = look(string.sub(key, #space + 9)) -- behind 'session:'
    if outcome == 'waits' then
      due_at, full = expires, true
      break
    end
    served = served + 1
  end
  call('LTRIM', line, served, -1)
  if full then
    call('ZADD', KEYS[1], due_at, lifetime)
  else
    call('ZREM', KEYS[1], lifetime)
  end
end

local overdue = call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #overdue, 2 do
  local name = overdue[i]
  if left == 0 then
    break
  elseif string.find(name, '^%d+$') then
    serve(name, overdue[i + 1])
  else
    local outcome, expires = look(name)
    if outcome == 'waits' then
      call('ZADD', KEYS[1], expires, name)
    elseif outcome ~= 'corrupt' then
      call('ZREM', KEYS[1], name)
    end
  end
end
return {'OK', expired, corrupt, looked, oldest}
