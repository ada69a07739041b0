local webhook_test_key = unpack(KEYS)
local id, reason, answer, took, target = unpack(ARGV)
-- uses: clock

-- Keeps how a test event was answered, if it is still the merchant's last one. took is in ms, target the fingerprint of
-- where it was sent.

if call('HGET', webhook_test_key, 'id') == id then
  call('HSET', webhook_test_key, 'reason', reason, 'answer', answer, 'took', took, 'target', target)
end
return {'OK'}
