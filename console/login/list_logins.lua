local logins_key = unpack(KEYS)

-- Lists a person's logins.
-- Returns their names.

return redis.call('ZRANGE', logins_key, 0, -1)
