local webhook_test_key, endpoint_key = unpack(KEYS)
-- uses: clock

-- Reads a merchant's last test event (send_webhook_test), and its last failed attempts.
-- Returns {'OK', {id, at, reason, answer, took, target} of the test event, the attempts, one a line, the newest last}.

return {'OK', call('HMGET', webhook_test_key, 'id', 'at', 'reason', 'answer', 'took', 'target'), call('HGET', endpoint_key, field.ATTEMPTS)}
