-- Expires sessions whose time is over. Expects clock, sessions() and expiry_key, which has when the sweep must examine a queue or a session. Defines the counts of the
-- reply, examine() and defer().
-- expiry_key and the expiry queues are an index only: the session itself decides.

local s = sessions()
local expired, corrupt, examined, oldest = 0, 0, 0, 0

-- Reads one session that should be overdue, and returns its outcome. Its expiresAt is returned too, if it counts.
local function expire(key, event_key, feed_key)
  local fields = call('HMGET', key, SESSION_FIELDS)
  if s.expire_if_due(key, event_key, feed_key, fields) then
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

-- A key of another type affects only its session. Any other failure is that of the server, and ends the sweep.
local function must_be_of_another_type(failure)
  local message = type(failure) == 'table' and failure.err or tostring(failure)
  if not string.find(message, 'WRONGTYPE', 1, true) then
    error(failure, 0)
  end
end

-- Defers what cannot be read until somebody may have repaired it. It must keep neither the others waiting nor the sweep busy.
local function defer(name)
  corrupt = corrupt + 1
  call('ZADD', expiry_key, now_ms + CORRUPT_RETRY_MS, name)
end

-- Examines one session; its name is how the index calls it.
local function examine(name, key, event_key, feed_key)
  examined = examined + 1
  local ok, outcome, expires = pcall(expire, key, event_key, feed_key)
  if not ok then
    must_be_of_another_type(outcome)
    outcome = 'corrupt'
  end
  if outcome == 'expired' and not string.find(key, ':session:ps_test', 1, true) then -- what is counted is live
    expired, oldest = expired + 1, math.max(oldest, now_ms - expires)
  elseif outcome == 'corrupt' then
    defer(name)
  end
  return outcome, expires
end
