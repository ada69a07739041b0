local dead_key = unpack(KEYS)
local event_prefix = unpack(ARGV, 1, 1)

-- Finds the merchants of dead letters of a bucket, whose ids are behind the named argument. The reply has an empty merchant for an id that is not of
-- a readable dead letter here.

local merchants = {}
for i, id in ipairs({unpack(ARGV, 2)}) do
  local merchant = call('ZSCORE', dead_key, id) and redis.pcall('HGET', event_prefix .. id, 'm')
  merchants[i] = type(merchant) == 'string' and merchant or ''
end
return {'OK', merchants}
