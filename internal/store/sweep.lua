-- Looks at sessions whose time may be over. Follows expiry.lua; KEYS[1] is the zset that tells what is due.

local expired, corrupt, looked, oldest = 0, 0, 0, 0

-- Zset and lines hold ids behind '{bNN}:session:', and what else somebody put there.
local function id_of(key)
  return string.sub(key, 15)
end

-- Looks at one session that should be overdue, and says what became of it. Both zset and lines are an index only: what the
-- session itself says counts. Its expiresAt comes with it, if it counts.
local function examine(key, event_key)
  local fields = call('HMGET', key, 's', 'x', 'e', 'f')
  if expire_if_due(key, event_key, fields) then
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

-- Puts off for an hour what cannot be read: somebody may have mended it by then. One that is broken must keep neither the others
-- waiting nor the sweeper busy.
local function put_off(name)
  corrupt = corrupt + 1
  call('ZADD', KEYS[1], now_ms + 3600000, name)
end

-- Looks at one session.
local function look(key, event_key)
  looked = looked + 1
  local ok, outcome, expires = pcall(examine, key, event_key)
  if not ok then
    must_be_of_another_type(outcome)
    outcome = 'corrupt'
  end
  if outcome == 'expired' then
    expired, oldest = expired + 1, math.max(oldest, now_ms - expires)
  elseif outcome == 'corrupt' then
    put_off(id_of(key))
  end
  return outcome, expires
end
