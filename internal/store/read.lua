-- Reads a session for its merchant.
-- KEYS[3] is the session, KEYS[4] the event of its end, KEYS[5] the bucket's queue, KEYS[6] its due merchants, KEYS[7] the
-- feed; ARGV[5] its history.

if result then
  return result .. moment
end
local fields = call('HMGET', KEYS[3], SESSION_FIELDS)
if not fields[STATUS] and now_ms >= (tonumber(fields[EXPIRES_AT]) or math.huge) then
  sessions(KEYS[5], KEYS[6], ARGV[5]).expire_if_due(KEYS[3], KEYS[4], KEYS[7], fields)
end
return {'OK' .. moment, fields}
