local merchants_key, reported_key, endpoint_key = unpack(KEYS)
local merchant, before, blocks = unpack(ARGV)
-- uses: clock, budget, full

-- Remembers what was reported of a merchant's blocked addresses.
-- merchants_key has the bucket's merchants with blocked addresses, by when something was reported, in ms; 0: nothing is.
-- reported_key has the blocks that were reported last, endpoint_key the budget of reports. before is when something was reported
-- before.
-- Returns {'OK'}.

local reported_at = call('ZSCORE', merchants_key, merchant)
if not reported_at then
  return {'OK'}
end
write_when_full('ZREM', merchants_key) -- else the same is reported again and again while Redis is full
if (call('GET', reported_key) or '') ~= blocks then
  charge_report(endpoint_key)
end
if reported_at ~= before then
  -- Another dispatcher reported meanwhile. It is unknown which report came last, so another one must follow.
  call('DEL', reported_key)
  call('ZADD', merchants_key, now_ms, merchant)
elseif blocks == '' then
  call('DEL', reported_key)
  call('ZADD', merchants_key, 0, merchant)
else
  call('SET', reported_key, blocks, 'PX', const.BLOCKED_REPORTED_MS)
  call('ZADD', merchants_key, now_ms, merchant)
end
return {'OK'}
