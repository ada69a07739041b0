-- Follows the prelude in every script that reads a session.

-- Takes the fields status, expiresAt and endedAt, in this order and whatever else behind them, and expires
-- the session if it is due. Whoever reads first writes; the session ended when it expired, not when it was read.
local function expire_if_due(key, fields)
  local expires = tonumber(fields[2])
  if fields[1] == 'PENDING' and expires and now_ms >= expires then
    call('HSET', key, 's', 'EXPIRED', 'e', fields[2])
    fields[1], fields[3] = 'EXPIRED', fields[2]
  end
end

-- Reads a whole session; the order is that of sessionOf in fields.go.
local function read_session(key)
  local fields = call('HMGET', key, 's', 'x', 'e', 'c', 'm', 'n', 'a', 'o', 't', 'p', 'u')
  expire_if_due(key, fields)
  return fields
end
