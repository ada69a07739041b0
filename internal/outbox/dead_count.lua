-- Counts what waits in a bucket.
-- KEYS[1] is its queue, KEYS[2] its dead letters, KEYS[3] its troubled endpoints. ARGV[1] is how long dead letters are kept in ms.

-- include: prelude

return {'OK', call('ZCARD', KEYS[1]), call('ZCOUNT', KEYS[2], now_ms - ARGV[1], '+inf'), call('ZCARD', KEYS[3])}
