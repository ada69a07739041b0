--- list_overdue
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

--- sweep
-- Expires sessions whose time is over. Expects clock, queue() and sessions(). Defines s, counts, examine() and put_off().
-- KEYS[1] says when the sweep must look, KEYS[2] is the bucket's queue, KEYS[3] its due merchants.
-- KEYS[1] and the expiry queues are an index only: what the session itself says counts.

local s = sessions(KEYS[2], KEYS[3])
local expired, corrupt, examined, oldest = 0, 0, 0, 0

-- Reads one session that should be overdue, and says what became of it. Its expiresAt is returned too, if it counts.
local function expire(key, event_key)
  local fields = call('HMGET', key, SESSION_FIELDS)
  if s.expire_if_due(key, event_key, fields) then
    return 'expired', tonumber(fields[EXPIRES_AT])
  end
  local expires = tonumber(fields[EXPIRES_AT])
  if not fields[STATUS] and not fields[ENDED_AT] and expires and expires > now_ms then
    return 'waits', expires
  elseif not fields[ENDED_AT] and (fields[STATUS] or fields[EXPIRES_AT] or fields[RECORD]) then
    return 'corrupt'
  end
  return 'over' -- it has ended, or is gone
end

-- A key of another type harms that one alone. Any other failure is that of the server, and ends the sweep.
local function must_be_of_another_type(failure)
  local message = type(failure) == 'table' and failure.err or tostring(failure)
  if not string.find(message, 'WRONGTYPE', 1, true) then
    error(failure, 0)
  end
end

-- Puts off for an hour what cannot be read: somebody may have repaired it by then. It must keep neither the others waiting nor the
-- sweeper busy.
local function put_off(name)
  corrupt = corrupt + 1
  call('ZADD', KEYS[1], now_ms + 3600000, name)
end

-- Examines one session; its name is how the index calls it.
local function examine(name, key, event_key)
  examined = examined + 1
  local ok, outcome, expires = pcall(expire, key, event_key)
  if not ok then
    must_be_of_another_type(outcome)
    outcome = 'corrupt'
  end
  if outcome == 'expired' and not string.find(key, ':session:ps_test', 1, true) then -- what is counted is live
    expired, oldest = expired + 1, math.max(oldest, now_ms - expires)
  elseif outcome == 'corrupt' then
    put_off(name)
  end
  return outcome, expires
end

--- sweep_queue
-- Expires the overdue sessions of an expiry queue.
-- KEYS[4] is the expiry queue, from KEYS[5] on in turn its first sessions and the events of their end. ARGV[1] is the queue's name in
-- KEYS[1], ARGV[2] since when it is due, from ARGV[3] on its first entries as they were listed.

local listed = #ARGV - 2
local entries, done, due_at = redis.pcall('LRANGE', KEYS[4], 0, listed), 0, false -- one more than was listed
if entries.err then
  must_be_of_another_type(entries)
  examined = 1
  put_off(ARGV[1])
  return {'OK', expired, corrupt, examined, oldest}
end
for i, entry in ipairs(entries) do
  if entry ~= ARGV[2 + i] then
    due_at = ARGV[2] -- the queue has moved on since it was listed
    break
  end
  local outcome, expires = examine(entry, KEYS[3 + 2 * i], KEYS[4 + 2 * i])
  if outcome == 'waits' then
    due_at = expires
    break
  end
  done = done + 1
end
call('LTRIM', KEYS[4], done, -1)
if due_at then
  call('ZADD', KEYS[1], due_at, ARGV[1])
else
  call('ZREM', KEYS[1], ARGV[1])
end
return {'OK', expired, corrupt, examined, oldest}

--- sweep_session
-- Expires a session that is in the index by itself.
-- KEYS[4] is the session, KEYS[5] the event of its end; ARGV[1] is its name in KEYS[1].

local outcome, expires = examine(ARGV[1], KEYS[4], KEYS[5])
if outcome == 'waits' then
  call('ZADD', KEYS[1], expires, ARGV[1])
elseif outcome ~= 'corrupt' then
  call('ZREM', KEYS[1], ARGV[1])
end
return {'OK', expired, corrupt, examined, oldest}
