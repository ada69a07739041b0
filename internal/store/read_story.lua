local session_key = unpack(KEYS)
-- uses: clock

-- Reads a session and what rails have reported of it, and writes nothing: a session that is due is reported as it will be.

local fields = call('HMGET', session_key, SESSION_FIELDS)
if not fields[RECORD] then
  return {'NOT_FOUND'}
end
if not fields[STATUS] and now_ms >= (tonumber(fields[EXPIRES_AT]) or math.huge) then
  fields[STATUS], fields[ENDED_AT] = 'EXPIRED', fields[EXPIRES_AT]
end
return {'OK', fields, call('HGETALL', session_key)}
