-- Records what there is to tell a merchant.

-- What all keys of a script begin with, for they are of one bucket: '{bNN}:'. Some keys are only known here and
-- so are not in KEYS; with the same hash tag they are in the same slot.
local space = string.sub(KEYS[1], 1, 6)

-- Records an event, to be delivered from now on; it is kept for 30 days. Takes its id, and its fields, name and
-- value in turn.
local function record_event(id, fields)
  local key = space .. 'event:' .. id
  call('HSET', key, 'V', '1', unpack(fields)) -- eventFormat
  call('PEXPIRE', key, 2592000000)
  call('ZADD', space .. 'due', now_ms, id)
end

-- Changes a session and records the event that tells of it. Takes the session's key, the kind of event, the end
-- of its id, the fields to change in the session, and those in which the event differs from what the session
-- was before; false hides one. Reads the session anew: a change is rare, and few readers need all of it.
local function change_session(key, kind, mark, change, news)
  -- What an event says of its session, under the same names. 'v' is of a refused payment: no session has it.
  local says = {'f', 's', 'x', 'e', 'r', 'y', 'v', 'w'}
  local id = string.sub(key, #space + 9) -- behind 'session:'
  local stored = call('HMGET', key, 'q', unpack(says))
  local sequence = (tonumber(stored[1]) or 0) + 1
  -- The merchant by itself, for who delivers the event must look for the endpoint.
  local merchant = string.match(stored[2] or '', '^%S*')
  local event = {'k', kind, 'd', news.e or now_ms, 'm', merchant, 'i', id, 'q', sequence}
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
  record_event('evt_' .. string.sub(id, 4) .. '_' .. mark, event)
  local fields = {'q', sequence}
  for name, value in pairs(change) do
    fields[#fields + 1], fields[#fields + 2] = name, value
  end
  call('HSET', key, unpack(fields))
end

-- Ends a session, which happens once: takes its final status, the end, and what else changes with it.
local function end_session(key, change)
  change_session(key, 'session.' .. string.lower(change.s), 'ended', change, change)
end
