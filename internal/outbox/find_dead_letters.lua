local dead_key = unpack(KEYS)
local event_prefix = unpack(ARGV, 1, 1)
-- uses: clock

-- Finds the accounts of dead letters of a bucket. Only this script knows the events, so their keys are not declared; it only reads
-- them.
-- dead_key lists the dead letters, event_prefix is what the keys of events begin with. Behind the named argument are the ids.
-- Returns {'OK', the account of each id}; it is empty for an id that is not of a readable dead letter here.

local accounts = {}
for i, id in ipairs({unpack(ARGV, 2)}) do
  local account = call('ZSCORE', dead_key, id) and redis.pcall('HGET', event_prefix .. id, field.ACCOUNT)
  accounts[i] = type(account) == 'string' and account or ''
end
return {'OK', accounts}
