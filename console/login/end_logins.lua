local logins_key = unpack(KEYS, 1, 1)

-- Ends logins of a person, whose list is logins_key. Behind the named key are the logins; the arguments are their names.

local login_keys = {unpack(KEYS, 2)}
for i, name in ipairs(ARGV) do
  redis.call('DEL', login_keys[i])
  redis.call('ZREM', logins_key, name)
end
return 'OK'
