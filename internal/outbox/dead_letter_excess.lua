local queue_key, due_key, dead_key, account_dead_key = unpack(KEYS, 1, 4)
local account, most, reason, merchant_name = unpack(ARGV, 1, 4)
-- uses: clock, full, queue, forget_dead_letters, dead_letters

-- Makes events of an account dead letters, until it has at most so many in the queue; those of test mode end. Behind the named keys are the keys
-- of the events, behind the named arguments the events as the queue has them. It leaves those that a dispatcher has leased, or has taken meanwhile.
-- Returns how many have ended, and the dead letters that the account has beyond its bound.

local ended, letters = 0, {}
local event_keys, queued = {unpack(KEYS, 5)}, {unpack(ARGV, 5)}
local excess = call('ZLEXCOUNT', queue_key, '[' .. account .. ':', '(' .. account .. ';') - most
write_when_full('ZREM', queue_key)
for i, event_key in ipairs(event_keys) do
  if ended < excess and not string.find(queued[i], '^[^:]*:%d+:[^:]+:') and call('ZSCORE', queue_key, queued[i]) then
    ended = ended + 1
    if events.is_test(account) or call('EXISTS', event_key) == 0 then
      events.release(queued[i])
      call('DEL', event_key)
    else
      letters = dead_letter(event_key, queued[i], reason, '', merchant_name)
    end
  end
end
return {'OK', ended, letters}
