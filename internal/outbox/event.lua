-- Records what there is to tell a merchant. Expects what queue.lua does, which it follows.

-- Records an event under its key, to be delivered from now on; it is kept for 30 days. Takes its fields, name and value in turn.
local function record_event(key, merchant, fields)
  call('HSET', key, 'V', '1', unpack(fields)) -- recordVersion
  call('PEXPIRE', key, 2592000000)
  enqueue(merchant, now_ms, string.match(key, ':event:(.*)'))
end

-- Changes a session and records the event that tells of it. Takes the keys of both, the kind of event, the fields to change in
-- the session, and those in which the event differs from what the session was before; false hides one. Reads the
-- session anew: a change is rare, and few readers need all of it.
local function change_session(key, event_key, kind, change, news)
  -- What an event says of its session, under the same names. 'v' is of a refused payment: no session has it.
  local says = {'f', 's', 'x', 'e', 'r', 'y', 'v', 'w'}
  local stored = call('HMGET', key, 'q', unpack(says))
  local sequence = (tonumber(stored[1]) or 0) + 1
  -- The merchant by itself, for who delivers the event must look for the endpoint.
  local merchant = string.match(stored[2] or '', '^[^ :]*')
  local event = {'k', kind, 'd', news.e or now_ms, 'm', merchant, 'i', string.match(key, ':session:(.*)'), 'q', sequence}
  for i, name in ipairs(says) do
    local value = news[name]
    if value == nil then
      value = stored[i + 1]
    end
    if value then
      event[#event + 1], event[#event + 2] = name, value
    end
  end
  -- The record comes first. Should it fail, the session has not changed, and the next one to look will try again.
  record_event(event_key, merchant, event)
  local fields = {'q', sequence}
  for name, value in pairs(change) do
    fields[#fields + 1], fields[#fields + 2] = name, value
  end
  call('HSET', key, unpack(fields))
end

-- Ends a session, which happens once: takes its key, that of the event that tells of it, its final status, the end, and what else
-- changes with it.
local function end_session(key, event_key, change)
  change_session(key, event_key, 'session.' .. string.lower(change.s), change, change)
end
