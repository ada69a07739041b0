local session_key = unpack(KEYS)
-- uses: clock

-- Reads the session that a receipt is of.
-- Returns {'OK', the time in ms, fields of the session}.

return {'OK', now_ms, call('HMGET', session_key, unpack(const.SESSION_FIELDS))}
