local logins_key = unpack(KEYS, 1, 1)

-- Ends logins of a person. logins_key lists them. Behind the named key are the logins; the arguments are their names.
-- Returns 'OK'.

local login_keys = {unpack(KEYS, 2)}
for i, name in ipairs(ARGV) do
  redis.call('DEL', login_keys[i])
  redis.call('ZREM', logins_key, name)
end
return 'OK'
