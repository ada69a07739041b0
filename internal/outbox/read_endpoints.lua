-- Reads how endpoints of a bucket fare, and how many events and dead letters each merchant has. All keys are only read.
-- KEYS[1] is the bucket's watched endpoints, KEYS[2] its queue. ARGV[1] and ARGV[2] what the keys of the bucket's endpoints and of
-- merchants' dead letters begin with, ARGV[3] how long dead letters are kept in ms, from ARGV[4] on merchants; none: those watched.

local merchants = {unpack(ARGV, 4)}
if #merchants == 0 then
  merchants = call('ZRANGE', KEYS[1], 0, -1)
end
local rows = {}
for i, merchant in ipairs(merchants) do
  local pending = call('ZLEXCOUNT', KEYS[2], '[' .. merchant .. ':', '(' .. merchant .. ';')
  local dead = call('ZCOUNT', ARGV[2] .. merchant, now_ms - ARGV[3], '+inf')
  rows[i] = {merchant, pending, dead, read_endpoint(ARGV[1] .. merchant)}
end
return {'OK', now_ms, rows}
