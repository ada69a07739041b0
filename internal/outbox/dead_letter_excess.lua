local queue_key, due_key, dead_key, account_dead_key = unpack(KEYS, 1, 4)
local account, most, reason, merchant_name = unpack(ARGV, 1, 4)
-- uses: clock, full, queue, dead_letters

-- Makes events of an account dead letters, until it has at most so many in the queue; those of test mode end. It leaves the events
-- that a dispatcher has leased, or has taken meanwhile.
-- dead_key and account_dead_key are the dead letters of the bucket and of the account. Behind the named keys are the keys of the
-- events, behind the named arguments the events as the queue has them. merchant_name is for people.
-- Returns {'OK', how many have ended, dead letters to drop}.

local ended, letters = 0, {}
local events, event_keys, queued = open_queue(queue_key, due_key), {unpack(KEYS, 5)}, {unpack(ARGV, 5)}
local excess = call('ZLEXCOUNT', queue_key, '[' .. account .. ':', '(' .. account .. ';') - most
write_when_full('ZREM', queue_key)
for i, event_key in ipairs(event_keys) do
  local leased = string.find(queued[i], '^[^:]*:%d+:[^:]+:')
  if ended < excess and not leased and call('ZSCORE', queue_key, queued[i]) then
    ended = ended + 1
    if events.is_test(account) or call('EXISTS', event_key) == 0 then
      events.release(queued[i])
      call('DEL', event_key)
    else
      letters = dead_letter(events, dead_key, account_dead_key, event_key, queued[i], reason, '', merchant_name)
    end
  end
end
return {'OK', ended, letters}
