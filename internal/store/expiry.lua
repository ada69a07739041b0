-- Follows event.lua where a session is read. Functions take the keys of the session and of the event that tells of its end.

-- Takes the fields status, expiresAt and endedAt, in this order and whatever else behind them, and expires
-- the session if it is due; says whether it was. Whoever looks first writes, and tells the merchant; the session
-- ended when it expired, not when it was looked at.
local function expire_if_due(key, event_key, fields)
  -- include: due
  if due then
    end_session(key, event_key, {s = 'EXPIRED', e = fields[2]})
    fields[1], fields[3] = 'EXPIRED', fields[2]
  end
  return due
end

-- Reads a whole session; the order is that of sessionOf in fields.go. A field that is asked for beside comes last.
local function read_session(key, event_key, ...)
  local fields = call('HMGET', key, 's', 'x', 'e', 'f', 'u', 'r', 'y', 'w', ...)
  expire_if_due(key, event_key, fields)
  return fields
end
