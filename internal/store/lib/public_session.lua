-- Defines public_session(). Uses clock and sessions.

-- Reads what a payer may see of a session, and expires it if it is due. Takes the keys of the session, of the event of its end and
-- of the feed, the bucket's queue, the history of the feed and the quota of an admitted request.
-- Returns 'NOT_FOUND<quota>', or {'OK<quota>', status, expiresAt, record, endedAt, how many payments were refused, how much of the
-- payment was refunded}.
local function public_session(session_key, event_key, feed_key, queue_key, due_key, history, quota)
  local status, expires_at, record, ended_at, refused = unpack(call('HMGET', session_key, unpack(const.PUBLIC_FIELDS)))
  if not record then
    return 'NOT_FOUND' .. quota
  end
  if not status and now_ms >= (tonumber(expires_at) or math.huge) then
    open_sessions(queue_key, due_key, history).expire(session_key, event_key, feed_key, expires_at)
    status, ended_at = 'EXPIRED', expires_at
  end
  local refunded = status == 'COMPLETED' and call('HGET', session_key, field.REFUNDED) or nil
  return {'OK' .. quota, status, expires_at, record, ended_at, refused, refunded}
end
