local requests_key, seen_key, merchants_key = unpack(KEYS)
local merchant, other = unpack(ARGV, 1, 2)
-- uses: clock

-- Adds requests from blocked addresses that an API replica has counted.
-- requests_key has the merchant's blocks of addresses by their requests, seen_key the same by their last request, merchants_key the
-- bucket's merchants with blocked addresses (list_blocked). other is the block that stands for those with the fewest requests.
-- Behind the named arguments are each block and its requests, in turn.
-- Returns {'OK'}.

call('ZREMRANGEBYSCORE', seen_key, '-inf', now_ms - const.BLOCKED_SHOWN_MS)
call('ZINTERSTORE', requests_key, 2, requests_key, seen_key, 'WEIGHTS', 1, 0)
local function add(block, count)
  call('ZINCRBY', requests_key, count, block)
  call('ZADD', seen_key, now_ms, block)
end
for i = 3, #ARGV, 2 do
  add(ARGV[i], ARGV[i + 1])
end
local excess = call('ZCARD', requests_key) - const.MAX_BLOCKS
if excess > 0 then
  local least, sum = call('ZPOPMIN', requests_key, excess), 0
  for i = 1, #least, 2 do
    call('ZREM', seen_key, least[i])
    sum = sum + least[i + 1]
  end
  add(other, sum)
end
call('PEXPIRE', requests_key, const.BLOCKED_SHOWN_MS)
call('PEXPIRE', seen_key, const.BLOCKED_SHOWN_MS)
call('ZADD', merchants_key, 'NX', 0, merchant)
return {'OK'}
