local expiry_key, queue_key, due_key = unpack(KEYS, 1, 3)
local history = unpack(ARGV, 1, 1)
-- uses: clock, sessions

-- Expires overdue sessions of a bucket.
-- expiry_key has when the sweep must examine an expiry queue or a single session (list_overdue). It and the queues are an index
-- only: the session itself decides. history is of the feeds.
-- Behind the named keys are, for each entry of expiry_key to examine, the key of its queue, if it is one, and for each of its
-- sessions the keys of the session, of the event of its end and of its feed. Behind the named arguments are, for each entry, its
-- name, since when it is due there, how many sessions follow, and these as they were listed.
-- Returns {'OK', how many live sessions expired, how many entries cannot be read, for how many ms the oldest of the expired ones was
-- due, 1 if a queue may have more sessions that are due, else 0}.

local sessions = open_sessions(queue_key, due_key, history)
local expired, corrupt, oldest, more, finished = 0, 0, 0, 0, {}

-- Reads one session that should be overdue, and returns its outcome: 'expired' and 'waits' with its expiresAt; 'corrupt'; or
-- 'over', as it has ended, or is gone.
local function expire(key, event_key, feed_key)
  local fields = call('HMGET', key, unpack(const.SESSION_FIELDS))
  if sessions.expire_if_due(key, event_key, feed_key, fields) then
    return 'expired', tonumber(fields[at.EXPIRES_AT])
  end
  local expires = tonumber(fields[at.EXPIRES_AT])
  if not fields[at.STATUS] and not fields[at.ENDED_AT] and expires and expires > now_ms then
    return 'waits', expires
  elseif not fields[at.ENDED_AT] and (fields[at.STATUS] or fields[at.EXPIRES_AT] or fields[at.RECORD]) then
    return 'corrupt'
  end
  return 'over'
end

-- Counts an entry that cannot be read, and defers it until somebody may have repaired it: it must neither block the others nor keep
-- the sweep busy. A failure ends the sweep, unless it only says that a key is of another type, which affects only this entry.
local function defer(name, failure)
  local message = type(failure) == 'table' and failure.err or tostring(failure)
  if failure and not string.find(message, 'WRONGTYPE', 1, true) then
    error(failure, 0)
  end
  corrupt = corrupt + 1
  call('ZADD', expiry_key, now_ms + const.CORRUPT_RETRY_MS, name)
end

-- Examines one session, which expiry_key or its queue has under this name. Returns what expire() returns.
local function examine(name, key, event_key, feed_key)
  local ok, outcome, expires = pcall(expire, key, event_key, feed_key)
  if not ok or outcome == 'corrupt' then
    defer(name, not ok and outcome)
    return 'corrupt'
  end
  if outcome == 'expired' and not string.find(key, ':session:ps_test', 1, true) then -- what is counted is live
    expired, oldest = expired + 1, math.max(oldest, now_ms - expires)
  end
  return outcome, expires
end

local function sweep_queue(name, since, listed, expiry_queue_key, keys)
  local entries, done = redis.pcall('LRANGE', expiry_queue_key, 0, #listed), 0 -- one more than was listed
  if entries.err then
    return defer(name, entries)
  end
  local due_at
  for i, entry in ipairs(entries) do
    if entry ~= listed[i] then
      due_at, more = since, 1 -- there are more than were listed, or the queue has moved on since
      break
    end
    local outcome, expires = examine(entry, unpack(keys, 3 * i - 2, 3 * i))
    if outcome == 'waits' then
      due_at = expires
      break
    end
    done, since = done + 1, expires or since -- those behind it expire later
  end
  call('LTRIM', expiry_queue_key, done, -1)
  if due_at then
    call('ZADD', expiry_key, due_at, name)
  else
    finished[#finished + 1] = name
  end
end

local function sweep_session(name, keys)
  local outcome, expires = examine(name, unpack(keys))
  if outcome == 'waits' then
    call('ZADD', expiry_key, expires, name)
  elseif outcome ~= 'corrupt' then
    finished[#finished + 1] = name
  end
end

local keys, args = {unpack(KEYS, 4)}, {unpack(ARGV, 2)}
local key, arg = 1, 1
while args[arg] do
  local name, since, count = unpack(args, arg, arg + 2)
  if string.find(name, '^%d*$') then
    sweep_queue(name, since, {unpack(args, arg + 3, arg + 2 + count)}, keys[key], {unpack(keys, key + 1, key + 3 * count)})
    key = key + 1
  else
    sweep_session(name, {unpack(keys, key, key + 2)})
  end
  key, arg = key + 3 * count, arg + 3 + count
end
if finished[1] then
  call('ZREM', expiry_key, unpack(finished)) -- behind all that is added: the key is not used any more after its last entry
end
return {'OK', expired, corrupt, oldest, more}
