local session_key = unpack(KEYS)
-- uses: clock

-- Reads the session that a receipt is of.

local fields = call('HMGET', session_key, SESSION_FIELDS)
return {'OK', now_ms, fields}
