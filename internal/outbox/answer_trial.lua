local trial_key = unpack(KEYS)
local id, reason, answer, took = unpack(ARGV)

-- Keeps how a test event was answered, if it is still the merchant's last one. took is in ms.

if call('HGET', trial_key, 'id') == id then
  call('HSET', trial_key, 'reason', reason, 'answer', answer, 'took', took)
end
return {'OK'}
