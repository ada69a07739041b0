-- Reads what a payer may see of a session, if the request is admitted. Expects result, quota and sessions(), session_key, event_key, the event of its end,
-- and feed_key. Defines reply.

local reply = result and result .. quota
if not reply then
  local status, expires_at, record, ended_at = unpack(call('HMGET', session_key, PUBLIC_FIELDS))
  if not record then
    reply = 'NOT_FOUND' .. quota
  else
    if not status and now_ms >= (tonumber(expires_at) or math.huge) then
      sessions().expire_if_due(session_key, event_key, feed_key, {status, expires_at})
      status, ended_at = 'EXPIRED', expires_at
    end
    local refunded = status == 'COMPLETED' and call('HGET', session_key, 'g') or nil
    reply = {'OK' .. quota, status, expires_at, record, ended_at, refunded}
  end
end
