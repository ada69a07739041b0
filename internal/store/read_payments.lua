local session_key, ended_key, queue_key, due_key, feed_key = unpack(KEYS)
local history = unpack(ARGV)
-- uses: clock, sessions, holds

-- Reads a session and what rails have reported of it, for a rail. ended_key is the event of the session's end, history is of the
-- feed.
-- Returns {'NOT_FOUND'}, or {'OK', fields of the session, all fields and their names if there is something to list, until when a
-- payment holds it in ms, 1 if a payment was refused because the merchant was deleted}.

local fields = open_sessions(queue_key, due_key, history)
  .read(session_key, ended_key, feed_key, field.LISTED, field.HOLD, field.MERCHANT_DELETED)
if not fields[at.RECORD] then
  return {'NOT_FOUND'}
end
local listed, hold, merchant_deleted = unpack(fields, #const.SESSION_FIELDS + 1)
local holder, ends = read_hold(hold)
local held = holder ~= 'nobody' and not fields[at.STATUS]
return {'OK', fields, listed and call('HGETALL', session_key) or {}, held and format('%d', ends), merchant_deleted and 1 or 0}
