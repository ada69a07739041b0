-- Reads the endpoints of a bucket that are disabled, or resumed and not yet told of.
-- KEYS[1] is the bucket's troubled endpoints; the keys of its endpoints begin with KEYS[2].

-- include: prelude
-- include: endpoint

local troubled = {}
for _, merchant in ipairs(call('ZRANGE', KEYS[1], 0, -1)) do
  local endpoint = read_endpoint(KEYS[2] .. merchant)
  if endpoint[3] or endpoint[5] then
    troubled[#troubled + 1] = {merchant, endpoint}
  else
    call('ZREM', KEYS[1], merchant)
  end
end
return {'OK', troubled}
