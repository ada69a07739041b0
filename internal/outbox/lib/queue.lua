-- Expects clock, and queue_key and due_key, the bucket's queue and its due merchants. Defines events, the functions on them.
-- The queue has members of score 0, '<merchant id>:<due, ms, 13 digits>:<event id>', and ':<token>' behind that of a leased one.
-- due_key lists the merchants in the queue by when their first event is due.
-- A server that is handing a slot over runs no command on a key that is gone, also if the script itself has just removed the last of it:
-- the script breaks off there. So an entry is added before another one is removed, and nothing touches a key that may be empty.

local events = {}

-- The first event of a merchant in the queue, other than this one.
function events.first(merchant, other_than)
  local two = call('ZRANGEBYLEX', queue_key, '[' .. merchant .. ':', '(' .. merchant .. ';', 'LIMIT', 0, 2)
  return two[two[1] == other_than and 2 or 1]
end

-- Puts a merchant where its first event is. With an overdue one it keeps its place, or goes behind all others if it was served:
-- so a long backlog has one turn for each of the others'.
function events.place(merchant, first, served)
  local at = first and string.match(first, ':(%d+):')
  if not at then
    call('ZREM', due_key, merchant)
  elseif tonumber(at) > now_ms then
    call('ZADD', due_key, at, merchant)
  elseif served then
    call('ZADD', due_key, now_us / 1000, merchant) -- to the microsecond, behind who came in this millisecond
  else
    call('ZADD', due_key, 'LT', now_ms, merchant)
  end
end

-- Adds an event that is due at a time in ms.
function events.add(merchant, at, id)
  local time = format('%013d', at)
  call('ZADD', queue_key, 0, merchant .. ':' .. time .. ':' .. id)
  call('ZADD', due_key, 'LT', time, merchant)
end

-- Puts a leased event back, to be due again at a time. A lost lease changes nothing.
function events.put_back(leased, at)
  if call('ZSCORE', queue_key, leased) then
    local merchant, id = string.match(leased, '^([^:]*):%d+:([^:]+)')
    call('ZADD', queue_key, 0, merchant .. format(':%013d:', at) .. id)
    call('ZREM', queue_key, leased)
    events.place(merchant, events.first(merchant))
  end
end

-- Takes a leased event out of the queue. false: the lease was lost. Nothing may touch the queue after it.
function events.release(leased)
  local merchant = string.match(leased, '^[^:]*')
  local first = events.first(merchant, leased)
  if call('ZREM', queue_key, leased) == 0 then
    return false
  end
  events.place(merchant, first)
  return true
end

-- Records an event under its key, due now and kept for 30 days. Takes its account, and the event as it is stored.
function events.record(key, merchant, event)
  call('HSET', key, 'm', merchant, 'b', event)
  call('PEXPIRE', key, 2592000000)
  events.add(merchant, now_ms, string.match(key, ':event:(.*)'))
end

-- Notifies the subscribers of the bucket that something happened to a session, or to none ('-'), of an account. An error only
-- delays them, as they also poll: it must not fail a payment that is recorded.
function events.publish(session_id, account)
  redis.pcall(PUBLISH_COMMAND, string.match(due_key, '^.-:') .. 'ended', session_id .. ' ' .. account)
end
