local logins_key = unpack(KEYS)

-- Returns the names of a person's logins.

return redis.call('ZRANGE', logins_key, 0, -1)
