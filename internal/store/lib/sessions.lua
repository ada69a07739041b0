-- Defines open_sessions(), which returns the functions that read and change sessions. Uses clock, queue and feed.
--
-- queue_key and due_key are the bucket's queue, in which events are recorded, and history is the history of the feed.
local function open_sessions(queue_key, due_key, history)
  local sessions, events = {}, open_queue(queue_key, due_key)

  -- Returns the id of a session, from its key.
  function sessions.id(key)
    return string.match(key, ':session:(.*)')
  end

  -- Changes a session and records the event of it, in the feed first if its key is given. Takes the keys of session, event and
  -- feed, the kind of event, and the fields to change in the session. differs has the fields of the event that are not as the
  -- session had them before; false: the field is empty. Reads the session again: a change is rare, and few readers need all of it.
  function sessions.change(key, event_key, feed_key, kind, change, differs)
    local names = const.EVENT_FIELDS
    local stored = call('HMGET', key, field.SEQUENCE, unpack(names))
    local sequence = format('%d', (tonumber(stored[1]) or 0) + 1)
    local account = string.match(stored[#stored] or '', '^[^\t]*')
    local ended_at = change[field.ENDED_AT]
    -- See Event.Append of package feed.
    local event = {const.EVENT_VERSION, kind, ended_at or format('%d', now_ms), string.sub(key, -const.RANDOM_LENGTH), sequence}
    for i, name in ipairs(names) do
      local value = differs[name]
      if value == nil then
        value = stored[i + 1]
      end
      event[i + 5] = not (name == field.ENDED_AT and ended_at) and value or ''
    end
    event = table.concat(event, '\t', 1, #event - 1) .. '\n' .. event[#event]
    local fields = {field.SEQUENCE, sequence}
    for name, value in pairs(change) do
      fields[#fields + 1], fields[#fields + 2] = name, value
    end
    -- The event comes first. If it fails, the session has not changed, and the next read tries again.
    local function write()
      events.record(event_key, account, event)
      call('HSET', key, unpack(fields))
    end
    if feed_key then
      append_to_feed(events, feed_key, history, event, sessions.id(key), account, write)
    else
      write()
      events.publish('-', '-') -- it is in no feed
    end
  end

  -- Ends a session, which happens once. Takes its keys, its status from now on, and what else changes with its end. Returns when it
  -- has ended, in ms.
  function sessions.finish(key, event_key, feed_key, status, change)
    change[field.STATUS] = status
    change[field.ENDED_AT] = change[field.ENDED_AT] or format('%d', now_ms)
    sessions.change(key, event_key, feed_key, 'session.' .. string.lower(status), change, change)
    if status ~= 'COMPLETED' then -- no later payment completes the session, so nobody is owed a receipt
      call('HDEL', key, field.EMAIL)
    end
    return change[field.ENDED_AT]
  end

  -- Expires a session. It ended when it expired, not when that was seen.
  function sessions.expire(key, event_key, feed_key, expires_at)
    return sessions.finish(key, event_key, feed_key, 'EXPIRED', {[field.ENDED_AT] = expires_at})
  end

  -- Takes the fields of a session and expires it if it is due; returns whether it was. The first read of a due session writes.
  function sessions.expire_if_due(key, event_key, feed_key, fields)
    local expires = not fields[at.STATUS] and tonumber(fields[at.EXPIRES_AT])
    local due = expires and now_ms >= expires -- garbage may be neither before nor after
    if due then
      sessions.expire(key, event_key, feed_key, fields[at.EXPIRES_AT])
      fields[at.STATUS], fields[at.ENDED_AT] = 'EXPIRED', fields[at.EXPIRES_AT]
    end
    return due
  end

  -- Reads a whole session, and expires it if it is due. Fields that are asked for besides come last.
  function sessions.read(key, event_key, feed_key, ...)
    local names = {unpack(const.SESSION_FIELDS)}
    for _, name in ipairs({...}) do
      names[#names + 1] = name
    end
    local fields = call('HMGET', key, unpack(names))
    sessions.expire_if_due(key, event_key, feed_key, fields)
    return fields
  end

  -- Writes a field of a session as it is, for an answer that rests on what another connection has written and replicas may not have
  -- yet. WAIT waits for the last write of its own connection (Redis 7.2, Valkey), and replicas confirm in order.
  function sessions.write_again(key, fields)
    call('HSET', key, field.EXPIRES_AT, fields[at.EXPIRES_AT])
  end

  -- Returns the status of a session, from its fields. An unreadable one is 'CORRUPT'.
  function sessions.status(fields)
    return fields[at.STATUS] or (fields[at.ENDED_AT] and 'CORRUPT') or 'PENDING'
  end

  return sessions
end
