-- Defines open_queue(), which returns the functions on the queue of a bucket. Uses clock.
--
-- queue_key is the queue. It has members of score 0, '<account>:<due, ms, 13 digits>:<event id>', and ':<token>' behind that of a
-- leased one. due_key lists the accounts in the queue by when their first event is due: a merchant has one for live and one for
-- test events.
--
-- A server that is handing a slot over runs no command on a key that is gone, also if the script itself has just removed the last
-- entry of it: the script breaks off there. So an entry is added before another one is removed, and nothing touches a key that
-- may be empty.
local function open_queue(queue_key, due_key)
  local events = {}

  -- Reports whether an account is one of test mode.
  function events.is_test(account)
    return string.find(account, '.test', -5, true)
  end

  -- Returns the first event of an account in the queue, other than this one.
  function events.first(account, other_than)
    local two = call('ZRANGEBYLEX', queue_key, '[' .. account .. ':', '(' .. account .. ';', 'LIMIT', 0, 2)
    return two[two[1] == other_than and 2 or 1]
  end

  -- Puts an account where its first event is. With an overdue one it keeps its place, or goes behind all others if it was served:
  -- so a long backlog has one turn for each of the others'.
  function events.place(account, first, served)
    local due = first and string.match(first, ':(%d+):')
    if not due then
      call('ZREM', due_key, account)
    elseif tonumber(due) > now_ms then
      call('ZADD', due_key, due, account)
    elseif served then
      call('ZADD', due_key, now_us / 1000, account) -- to the microsecond, behind who came in this millisecond
    else
      call('ZADD', due_key, 'LT', now_ms, account)
    end
  end

  -- Adds an event that is due at a time in ms.
  function events.add(account, due, id)
    local time = format('%013d', due)
    call('ZADD', queue_key, 0, account .. ':' .. time .. ':' .. id)
    call('ZADD', due_key, 'LT', time, account)
  end

  -- Puts a leased event back, to be due again at a time in ms. A lost lease changes nothing.
  function events.put_back(leased, due)
    if call('ZSCORE', queue_key, leased) then
      local account, id = string.match(leased, '^([^:]*):%d+:([^:]+)')
      call('ZADD', queue_key, 0, account .. format(':%013d:', due) .. id)
      call('ZREM', queue_key, leased)
      events.place(account, events.first(account))
    end
  end

  -- Takes an event out of the queue and reports whether it was there: a leased one is not if its lease was lost. Nothing may touch
  -- the queue after it.
  function events.release(queued)
    local account = string.match(queued, '^[^:]*')
    local first = events.first(account, queued)
    if call('ZREM', queue_key, queued) == 0 then
      return false
    end
    events.place(account, first)
    return true
  end

  -- Records an event under its key, due now. event is the event as it is stored.
  function events.record(key, account, event)
    call('HSET', key, field.ACCOUNT, account, field.EVENT, event)
    call('PEXPIRE', key, const.EVENT_RETENTION_MS)
    events.add(account, now_ms, string.match(key, ':event:(.*)'))
  end

  -- Notifies the subscribers of the bucket of an event: of a session, or of none ('-'), and new in the feed of an account, or in
  -- none ('-'). An error only delays them, as they also poll: it must not fail a payment that is recorded.
  function events.publish(session_id, account)
    redis.pcall(const.PUBLISH, string.match(due_key, '^.-:') .. 'ended', session_id .. ' ' .. account)
  end

  return events
end
