-- Expects clock. Defines forget_dead_letters() and dead_keep_ms.

-- Dead letters are kept for 30 days, and so are their events.
local dead_keep_ms = 2592000000

-- Forgets dead letters whose time is over, the oldest first. Not all of a million at once, which would hold up Redis.
local function forget_dead_letters(key)
  local old = call('ZRANGEBYSCORE', key, '-inf', now_ms - dead_keep_ms, 'LIMIT', 0, 100)
  if #old > 0 then
    call('ZREM', key, unpack(old))
  end
end
