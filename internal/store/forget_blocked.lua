-- Forgets the blocked addresses of a merchant that is gone.
-- KEYS: the bucket's merchants with blocked addresses, then all keys of this merchant's.

call('DEL', unpack(KEYS, 2))
call('ZREM', KEYS[1], ARGV[1])
return {'OK'}
