local queue_key, due_key, event_key, dead_key, account_dead_key = unpack(KEYS)
local leased, reason, answer, merchant_name = unpack(ARGV)
-- uses: clock, full, queue, lease_held, dead_letters

-- Makes an event a dead letter without an attempt.
-- dead_key and account_dead_key are the dead letters of the bucket and of the account. leased is the leased event as the queue has
-- it, answer is the endpoint's last one, merchant_name is for people.
-- Returns {'STALE'}: the lease was lost; or {'OK', dead letters to drop}.

if not lease_held(queue_key, leased, event_key) then
  return {'STALE'}
end
write_when_full('ZREM', queue_key)
local events = open_queue(queue_key, due_key)
return {'OK', dead_letter(events, dead_key, account_dead_key, event_key, leased, reason, answer, merchant_name)}
