-- Counts what waits in a bucket.
-- KEYS[1] is its due events, KEYS[2] its dead letters, KEYS[3] its troubled endpoints.

-- include: prelude
-- include: dead

return {'OK', call('ZCARD', KEYS[1]), call('ZCOUNT', KEYS[2], now_ms - dead_keep_ms, '+inf'), call('ZCARD', KEYS[3])}
