local webhook_test_key, endpoint_key = unpack(KEYS)
-- uses: clock

-- Reads the merchant's last test event, and its last failed attempts, one a line, the newest last.

return {'OK', call('HMGET', webhook_test_key, 'id', 'at', 'reason', 'answer', 'took', 'target'), call('HGET', endpoint_key, 'attempts')}
