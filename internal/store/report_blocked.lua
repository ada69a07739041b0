-- Remembers what was reported of a merchant's blocked addresses.
-- KEYS: the bucket's merchants with blocked addresses, by when something was reported, 0 if nothing is; the reported blocks; the merchant's
-- endpoint, which has the budget.
-- ARGV: the merchant id, when something was reported before, the blocks that are reported now.

local merchants, reported, endpoint = unpack(KEYS)
local merchant, before, blocks = unpack(ARGV)

local reported_at = call('ZSCORE', merchants, merchant)
if not reported_at then
  return {'OK'}
end
if (call('GET', reported) or '') ~= blocks then
  pay_report(endpoint)
end
if reported_at ~= before then
  -- Another dispatcher reported meanwhile. Nobody knows which report came last, so there must be another one.
  call('DEL', reported)
  call('ZADD', merchants, now_ms, merchant)
elseif blocks == '' then
  call('DEL', reported)
  call('ZADD', merchants, 0, merchant)
else
  call('SET', reported, blocks, 'PX', BLOCKED_REPORTED)
  call('ZADD', merchants, now_ms, merchant)
end
return {'OK'}
