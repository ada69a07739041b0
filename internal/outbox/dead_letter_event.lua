local queue_key, due_key, event_key, dead_key, account_dead_key = unpack(KEYS)
local leased, reason, answer, merchant_name = unpack(ARGV)
-- uses: clock, full, queue, lease_held, forget_dead_letters, dead_letters

-- Makes an event a dead letter without an attempt. leased is the leased event as the queue has it, answer the endpoint's last one, merchant_name
-- is for people.

if not lease_held() then
  return {'STALE'}
end
write_when_full('ZREM', queue_key)
return {'OK', dead_letter(event_key, leased, reason, answer, merchant_name)}
