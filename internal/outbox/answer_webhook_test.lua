local webhook_test_key = unpack(KEYS)
local id, reason, answer, took, target = unpack(ARGV)
-- uses: clock

-- Keeps how a test event was answered, if it is still the merchant's last one.
-- webhook_test_key is a hash, see send_webhook_test. id is the event, took is in ms, target is the fingerprint of where the event
-- was sent.
-- Returns {'OK'}.

if call('HGET', webhook_test_key, 'id') == id then
  call('HSET', webhook_test_key, 'reason', reason, 'answer', answer, 'took', took, 'target', target)
end
return {'OK'}
