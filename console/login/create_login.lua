-- KEYS: the login, the list of its person's logins. ARGV: record, idle and lifetime in milliseconds, name of the login.
local ends = now_ms + ARGV[3]
call('HSET', KEYS[1], 'record', ARGV[1], 'ends', format('%.0f', ends))
call('PEXPIRE', KEYS[1], ARGV[2])
call('ZREMRANGEBYSCORE', KEYS[2], '-inf', format('%.0f', now_ms))
call('ZADD', KEYS[2], format('%.0f', ends), ARGV[4])
call('PEXPIRE', KEYS[2], ARGV[3])
return 'OK'
