-- Expects clock and queue. Defines s, the functions that change sessions.

local s = {}

-- Changes a session and records the event of it. Takes the keys of both, the kind of event, the fields to change in the session,
-- and those in which the event differs from what the session was before; false hides one. Reads the session anew: a change is
-- rare, and few readers need all of it.
function s.change(key, event_key, kind, change, differs)
  local names = {EVENT_FIELDS}
  local stored = call('HMGET', key, 'q', EVENT_FIELDS)
  local sequence = (tonumber(stored[1]) or 0) + 1
  -- The merchant by itself: whoever delivers the event must look for the endpoint.
  local merchant = string.match(stored[2] or '', '^[^\t:]*')
  local event = {
    'k', kind, 'd', differs.e or now_ms, 'm', merchant, 'i', string.match(key, ':session:(.*)'), 'q', sequence,
  }
  for i, name in ipairs(names) do
    local value = differs[name]
    if value == nil then
      value = stored[i + 1]
    end
    if value then
      event[#event + 1], event[#event + 2] = name, value
    end
  end
  -- The record comes first. Should it fail, the session has not changed, and the next one to look will try again.
  events.record(event_key, merchant, event)
  local fields = {'q', sequence}
  for name, value in pairs(change) do
    fields[#fields + 1], fields[#fields + 2] = name, value
  end
  call('HSET', key, unpack(fields))
end

-- Ends a session, which happens once: takes its key, that of the event, and what changes with its end. Whoever waits for the end is
-- told. A server that refuses that only delays them, as they also look by themselves: it must not fail a payment that is recorded.
function s.finish(key, event_key, change)
  s.change(key, event_key, 'session.' .. string.lower(change.s), change, change)
  local space, id = string.match(key, '^(.-:)session:(.*)')
  redis.pcall(PUBLISH_COMMAND, space .. 'ended', id)
end

-- Takes the fields of a session and expires it if it is due; says whether it was. Whoever looks first writes; the session ended
-- when it expired, not when it was looked at.
function s.expire_if_due(key, event_key, fields)
  local expires = not fields[STATUS] and tonumber(fields[EXPIRES_AT])
  local due = expires and now_ms >= expires -- garbage may be neither before nor after
  if due then
    s.finish(key, event_key, {s = 'EXPIRED', e = fields[EXPIRES_AT]})
    fields[STATUS], fields[ENDED_AT] = 'EXPIRED', fields[EXPIRES_AT]
  end
  return due
end

-- Reads a whole session. A field that is asked for besides comes last.
function s.read(key, event_key, ...)
  local fields = call('HMGET', key, SESSION_FIELDS, ...)
  s.expire_if_due(key, event_key, fields)
  return fields
end

-- Looks up the decision on a request to end a session in the rules, which come from session.Cancel and session.Settle as
-- '<payment>/<status>/<same or other amount>=<decision>' for each case. nil: there is no such case.
function s.decide(rules, payment, fields, same)
  local status = fields[STATUS] or (fields[ENDED_AT] and 'CORRUPT') or 'PENDING'
  local case = payment .. '/' .. status .. '/' .. (same and 'same' or 'other') .. '='
  local _, last = string.find(rules, case, 1, true)
  return last and string.match(rules, '[%a_]+', last + 1)
end
