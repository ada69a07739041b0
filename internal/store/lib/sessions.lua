-- Expects clock, queue, append_to_feed() and history. Defines s, the functions that change sessions.

local s = {}

-- The id of a session, from its key.
function s.id(key)
  return string.match(key, ':session:(.*)')
end

-- Changes a session and records the event of it, in the feed first if its key is given. Takes the keys of session, event and feed, the kind of
-- event, the fields to change in the session, and those in which the event differs from what the session was before; false hides one. Reads the
-- session again: a change is rare, and few readers need all of it.
function s.change(key, event_key, feed_key, kind, change, differs)
  local names = {EVENT_FIELDS}
  local stored = call('HMGET', key, 'q', EVENT_FIELDS)
  local sequence = format('%d', (tonumber(stored[1]) or 0) + 1)
  local account = string.match(stored[#stored] or '', '^[^\t]*')
  -- See Event.Append of package feed.
  local event = {'EVENT_VERSION', kind, change.e or format('%d', now_ms), string.sub(key, -RANDOM_LENGTH), sequence}
  for i, name in ipairs(names) do
    local value = differs[name]
    if value == nil then
      value = stored[i + 1]
    end
    event[i + 5] = not (name == 'e' and change.e) and value or ''
  end
  event = table.concat(event, '\t', 1, #event - 1) .. '\n' .. event[#event]
  local fields = {'q', sequence}
  for name, value in pairs(change) do
    fields[#fields + 1], fields[#fields + 2] = name, value
  end
  -- The event comes first. If it fails, the session has not changed, and the next read tries again.
  local function write()
    events.record(event_key, account, event)
    call('HSET', key, unpack(fields))
  end
  if feed_key then
    append_to_feed(feed_key, history, event, s.id(key), account, write)
  else
    write()
    events.publish('-', '-') -- it is in no feed
  end
end

-- Ends a session, which happens once: takes its keys, and what changes with its end.
function s.finish(key, event_key, feed_key, change)
  change.e = change.e or format('%d', now_ms)
  s.change(key, event_key, feed_key, 'session.' .. string.lower(change.s), change, change)
end

-- Takes the fields of a session and expires it if it is due; returns whether it was. The first read writes; the session ended
-- when it expired, not when it was read.
function s.expire_if_due(key, event_key, feed_key, fields)
  local expires = not fields[STATUS] and tonumber(fields[EXPIRES_AT])
  local due = expires and now_ms >= expires -- garbage may be neither before nor after
  if due then
    s.finish(key, event_key, feed_key, {s = 'EXPIRED', e = fields[EXPIRES_AT]})
    fields[STATUS], fields[ENDED_AT] = 'EXPIRED', fields[EXPIRES_AT]
  end
  return due
end

-- Reads a whole session. A field that is asked for besides comes last.
function s.read(key, event_key, feed_key, ...)
  local fields = call('HMGET', key, SESSION_FIELDS, ...)
  s.expire_if_due(key, event_key, feed_key, fields)
  return fields
end

-- The status of a session, from its fields. An unreadable one is 'CORRUPT'.
function s.status(fields)
  return fields[STATUS] or (fields[ENDED_AT] and 'CORRUPT') or 'PENDING'
end
