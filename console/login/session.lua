--- create_login
-- KEYS: the login, the list of its person's logins. ARGV: record, idle and lifetime in milliseconds, name of the login.
local ends = now_ms + ARGV[3]
call('HSET', KEYS[1], 'record', ARGV[1], 'ends', format('%.0f', ends))
call('PEXPIRE', KEYS[1], ARGV[2])
call('ZREMRANGEBYSCORE', KEYS[2], '-inf', format('%.0f', now_ms))
call('ZADD', KEYS[2], format('%.0f', ends), ARGV[4])
call('PEXPIRE', KEYS[2], ARGV[3])
return 'OK'

--- read_login
-- KEYS: the login. ARGV: idle in milliseconds. Returns the record and keeps it for that time; empty: there is none.
local found = call('HMGET', KEYS[1], 'record', 'ends')
if not found[1] then return '' end
local left = found[2] - now_ms
if left <= 0 then return '' end
call('PEXPIRE', KEYS[1], format('%.0f', math.min(left, ARGV[1])))
return found[1]

--- list_logins
-- KEYS: the list of a person's logins. Returns their names.
return redis.call('ZRANGE', KEYS[1], 0, -1)

--- end_logins
-- KEYS: the list of a person's logins, then logins. ARGV: the names of these logins.
for i, name in ipairs(ARGV) do
  redis.call('DEL', KEYS[i + 1])
  redis.call('ZREM', KEYS[1], name)
end
return 'OK'
