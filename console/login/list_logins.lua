-- KEYS: the list of a person's logins. Returns their names.
return redis.call('ZRANGE', KEYS[1], 0, -1)
