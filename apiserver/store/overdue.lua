-- Tells for how long the entry that has waited longest is due; 0: none is.
-- KEYS[1] holds due events, KEYS[2] pending sessions by their expiry.

-- include: prelude

local function overdue(key)
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return first[2] and math.max(0, now_ms - first[2]) or 0
end

return {'OK', overdue(KEYS[1]), overdue(KEYS[2])}
