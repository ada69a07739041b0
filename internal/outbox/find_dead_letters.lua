local dead_key = unpack(KEYS)
local event_prefix = unpack(ARGV, 1, 1)
-- uses: clock

-- Finds the accounts of dead letters of a bucket, whose ids are behind the named argument. The reply has an empty account for an id that is not of
-- a readable dead letter here.

local accounts = {}
for i, id in ipairs({unpack(ARGV, 2)}) do
  local account = call('ZSCORE', dead_key, id) and redis.pcall('HGET', event_prefix .. id, 'm')
  accounts[i] = type(account) == 'string' and account or ''
end
return {'OK', accounts}
