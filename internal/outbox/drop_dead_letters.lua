local dead_key, account_dead_key = unpack(KEYS, 1, 2)
-- uses: clock

-- Drops dead letters of an account, and their events.
-- dead_key and account_dead_key are the dead letters of the bucket and of the account. Behind the named keys are the events; the
-- arguments are their ids.
-- Returns {'OK', how many were dropped}.

local dropped, event_keys = 0, {unpack(KEYS, 3)}
for i, id in ipairs(ARGV) do
  if call('ZREM', account_dead_key, id) == 1 then -- else it was sent again meanwhile
    call('ZREM', dead_key, id)
    call('DEL', event_keys[i])
    dropped = dropped + 1
  end
end
return {'OK', dropped}
