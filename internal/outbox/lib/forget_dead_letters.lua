-- Expects clock. Defines forget_dead_letters(). Dead letters are kept as long as their events.

-- Forgets dead letters whose time is over, the oldest first. Not all of a million at once, which would hold up Redis.
local function forget_dead_letters(key)
  local old = call('ZRANGEBYSCORE', key, '-inf', now_ms - EVENT_RETENTION_MS, 'LIMIT', 0, 100)
  if #old > 0 then
    call('ZREM', key, unpack(old))
  end
end
