-- Reads what a payer may see of a session; whoever has the id is admitted.
-- Expects result and moment; session_key, event_key, the event of its end, queue_key and due_key, the bucket's due merchants,
-- feed_key and history, those of the feed.

if result then
  return result .. moment
end
local fields = call('HMGET', session_key, PUBLIC_FIELDS)
if not fields[3] then
  return 'NOT_FOUND' .. moment
end
if not fields[STATUS] and now_ms >= (tonumber(fields[EXPIRES_AT]) or math.huge) then
  sessions(queue_key, due_key, history).expire_if_due(session_key, event_key, feed_key, {fields[STATUS], fields[EXPIRES_AT]})
  fields[STATUS] = 'EXPIRED'
end
return {'OK' .. moment, fields[STATUS], fields[EXPIRES_AT], fields[3]}
