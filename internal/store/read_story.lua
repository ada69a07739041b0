local session_key = unpack(KEYS)
-- uses: clock

-- Reads a session and what rails have reported of it, and writes nothing: a session that is due is reported as it will be.
-- Returns {'NOT_FOUND'}, or {'OK', fields of the session, all fields and their names}.

local fields = call('HMGET', session_key, unpack(const.SESSION_FIELDS))
if not fields[at.RECORD] then
  return {'NOT_FOUND'}
end
if not fields[at.STATUS] and now_ms >= (tonumber(fields[at.EXPIRES_AT]) or math.huge) then
  fields[at.STATUS], fields[at.ENDED_AT] = 'EXPIRED', fields[at.EXPIRES_AT]
end
return {'OK', fields, call('HGETALL', session_key)}
