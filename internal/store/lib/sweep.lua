-- Defines new_sweep(), which returns the functions that expire sessions whose time is over, and their counts. Uses clock.
--
-- expiry_key has when the sweep must examine an expiry queue or a session. It and the queues are an index only: the session itself
-- decides. sessions are the functions of lib/sessions.
local function new_sweep(expiry_key, sessions)
  local sweep, expired, corrupt, examined, oldest = {}, 0, 0, 0, 0

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

  -- Counts an entry that cannot be read, and defers it until somebody may have repaired it. It must keep neither the others waiting
  -- nor the sweep busy.
  local function defer(name)
    corrupt = corrupt + 1
    call('ZADD', expiry_key, now_ms + const.CORRUPT_RETRY_MS, name)
  end

  -- Ends the sweep with a failure, unless it only says that a key is of another type, which affects only its session.
  local function must_be_of_another_type(failure)
    local message = type(failure) == 'table' and failure.err or tostring(failure)
    if not string.find(message, 'WRONGTYPE', 1, true) then
      error(failure, 0)
    end
  end

  -- Examines one session, which expiry_key or its queue has under this name. Returns its outcome and, if it counts, its expiresAt.
  function sweep.examine(name, key, event_key, feed_key)
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

  -- Defers an entry because of this failure to read it.
  function sweep.fail(name, failure)
    must_be_of_another_type(failure)
    examined = 1
    defer(name)
  end

  -- Returns the reply of the script: {'OK', how many live sessions expired, how many entries cannot be read, how many sessions were
  -- examined, for how many ms the oldest of the expired ones was due}.
  function sweep.reply()
    return {'OK', expired, corrupt, examined, oldest}
  end

  return sweep
end
