-- The queue of events that wait for delivery. Expects queue_key, '{bNN}:queue', and due_key, '{bNN}:due'.
-- The queue is in the order of its members, which all have the score 0: '<merchant id>:<due, ms, 13 digits>:<event id>', and
-- ':<token>' behind that of a leased one. due_key lists the merchants in it by when it is their turn: when their first event is due.

-- Puts a merchant where its first event is. With an overdue one it keeps its place, or goes behind all who wait if it was served:
-- so a long backlog has one turn for each of the others'.
local function line_up(merchant, served)
  local first = call('ZRANGEBYLEX', queue_key, '[' .. merchant .. ':', '(' .. merchant .. ';', 'LIMIT', 0, 1)[1]
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
local function enqueue(merchant, at, id)
  local time = format('%013d', at)
  call('ZADD', queue_key, 0, merchant .. ':' .. time .. ':' .. id)
  call('ZADD', due_key, 'LT', time, merchant)
end

-- Takes a leased event out of the queue, and puts it back if it is due again at a time. False: the lease was lost.
local function release(leased, again)
  if call('ZREM', queue_key, leased) == 0 then
    return false
  end
  local merchant, id = string.match(leased, '^([^:]*):%d+:([^:]+)')
  if again then
    call('ZADD', queue_key, 0, merchant .. format(':%013d:', again) .. id)
  end
  line_up(merchant)
  return true
end
