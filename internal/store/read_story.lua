local session_key = unpack(KEYS)

-- Reads a session and what rails have reported of it, and writes nothing: a session that is due is reported as it will be.

local fields = call('HMGET', session_key, SESSION_FIELDS)
if not fields[RECORD] then
  return {'NOT_FOUND'}
end
if not fields[STATUS] and now_ms >= (tonumber(fields[EXPIRES_AT]) or math.huge) then
  fields[STATUS], fields[ENDED_AT] = 'EXPIRED', fields[EXPIRES_AT]
end
local all, refused = call('HGETALL', session_key), {}
for i = 1, #all, 2 do
  if string.sub(all[i], 1, 2) == 'l:' then
    refused[#refused + 1], refused[#refused + 2] = string.sub(all[i], 3), all[i + 1]
  end
end
return {'OK', fields, refused}
