-- Follows event.lua in every script that reads a session.

-- Takes the fields status, expiresAt and endedAt, in this order and whatever else behind them, and expires
-- the session if it is due; says whether it was. Whoever looks first writes, and tells the merchant; the session
-- ended when it expired, not when it was looked at.
local function expire_if_due(key, fields)
  local expires = tonumber(fields[2])
  if not (fields[1] == 'PENDING' and expires and now_ms >= expires) then -- garbage may be neither before nor after
    return false
  end
  end_session(key, {s = 'EXPIRED', e = fields[2]})
  fields[1], fields[3] = 'EXPIRED', fields[2]
  return true
end

-- Reads a whole session; the order is that of sessionOf in fields.go. A field that is asked for beside comes last.
local function read_session(key, ...)
  local fields = call('HMGET', key, 's', 'x', 'e', 'c', 'm', 'n', 'a', 'o', 't', 'p', 'u', 'r', 'y', 'w', ...)
  expire_if_due(key, fields)
  return fields
end
