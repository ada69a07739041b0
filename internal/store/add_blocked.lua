-- Adds requests from blocked addresses that an API replica has counted.
-- KEYS: the merchant's blocks by their requests, the same by their last request, the bucket's merchants with blocked addresses.
-- ARGV: after these two, each block and its requests.

local requests, seen, merchants = unpack(KEYS)
local merchant, other = unpack(ARGV)

call('ZREMRANGEBYSCORE', seen, '-inf', now_ms - BLOCKED_SHOWN)
call('ZINTERSTORE', requests, 2, requests, seen, 'WEIGHTS', 1, 0)
local function add(block, count)
  call('ZINCRBY', requests, count, block)
  call('ZADD', seen, now_ms, block)
end
for i = 3, #ARGV, 2 do
  add(ARGV[i], ARGV[i + 1])
end
-- Those with the fewest requests become others.
local excess = call('ZCARD', requests) - MAX_BLOCKS
if excess > 0 then
  local least, sum = call('ZPOPMIN', requests, excess), 0
  for i = 1, #least, 2 do
    call('ZREM', seen, least[i])
    sum = sum + least[i + 1]
  end
  add(other, sum)
end
call('PEXPIRE', requests, BLOCKED_SHOWN)
call('PEXPIRE', seen, BLOCKED_SHOWN)
call('ZADD', merchants, 'NX', 0, merchant)
return {'OK'}
