-- Reads what a payer may see of a session; whoever has the id is admitted.
-- KEYS[2] is the session, KEYS[3] the event of its end, KEYS[4] the bucket's queue, KEYS[5] its due merchants.

if refusal then
  return refusal .. moment
end
local fields = call('HMGET', KEYS[2], PUBLIC_FIELDS)
if not fields[3] then
  return 'NOT_FOUND' .. moment
end
if not fields[STATUS] and now_ms >= (tonumber(fields[EXPIRES_AT]) or math.huge) then
  sessions(KEYS[4], KEYS[5]).expire_if_due(KEYS[2], KEYS[3], {fields[STATUS], fields[EXPIRES_AT]})
  fields[STATUS] = 'EXPIRED'
end
return {'OK' .. moment, fields[STATUS], fields[EXPIRES_AT], fields[3]}
