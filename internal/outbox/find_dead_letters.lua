-- Finds the merchants of dead letters. The reply has an empty merchant for an id that is not of a readable dead letter here.
-- KEYS[1] is the bucket's dead letters. ARGV[1] is what the keys of the bucket's events begin with, from ARGV[2] on ids.

local merchants = {}
for i = 2, #ARGV do
  local merchant = call('ZSCORE', KEYS[1], ARGV[i]) and redis.pcall('HGET', ARGV[1] .. ARGV[i], 'm')
  merchants[i - 1] = type(merchant) == 'string' and merchant or ''
end
return {'OK', merchants}
