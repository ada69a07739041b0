local merchants_key, reported_key, endpoint_key = unpack(KEYS)
local merchant, before, blocks = unpack(ARGV)
-- uses: clock, endpoint, budget

-- Remembers what was reported of a merchant's blocked addresses.
-- merchants_key has the bucket's merchants with blocked addresses, by when something was reported, 0 if nothing is. reported_key has the blocks that
-- were reported last, endpoint_key the budget. before is when something was reported before.

local reported_at = call('ZSCORE', merchants_key, merchant)
if not reported_at then
  return {'OK'}
end
if (call('GET', reported_key) or '') ~= blocks then
  charge_report()
end
if reported_at ~= before then
  -- Another dispatcher reported meanwhile. It is unknown which report came last, so another one must follow.
  call('DEL', reported_key)
  call('ZADD', merchants_key, now_ms, merchant)
elseif blocks == '' then
  call('DEL', reported_key)
  call('ZADD', merchants_key, 0, merchant)
else
  call('SET', reported_key, blocks, 'PX', BLOCKED_REPORTED)
  call('ZADD', merchants_key, now_ms, merchant)
end
return {'OK'}
