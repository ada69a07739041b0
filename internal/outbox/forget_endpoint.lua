-- Forgets an endpoint.
-- KEYS[1] is the endpoint, KEYS[2] the bucket's watched endpoints; ARGV[1] the merchant id.

call('DEL', KEYS[1])
call('ZREM', KEYS[2], ARGV[1])
return {'OK'}
