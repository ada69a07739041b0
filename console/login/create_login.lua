local login_key, logins_key = unpack(KEYS)
local record, idle, lifetime, name = unpack(ARGV)
-- uses: clock

-- Creates a login. logins_key lists the logins of its person by when they end; idle and lifetime are in ms.
-- Returns 'OK'.

local ends = now_ms + lifetime
call('HSET', login_key, 'record', record, 'ends', format('%.0f', ends))
call('PEXPIRE', login_key, idle)
call('ZREMRANGEBYSCORE', logins_key, '-inf', format('%.0f', now_ms))
call('ZADD', logins_key, format('%.0f', ends), name)
call('PEXPIRE', logins_key, lifetime)
return 'OK'
