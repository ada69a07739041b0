-- Reads the endpoints of a bucket that are disabled, or resumed and not yet told of, and those that were.
-- KEYS[1] is the bucket's troubled endpoints; ARGV[1] is what the keys of its endpoints begin with. They are only read, for which they
-- are is known here alone.

-- include: prelude
-- include: endpoint

local troubled = {}
for _, merchant in ipairs(call('ZRANGE', KEYS[1], 0, -1)) do
  troubled[#troubled + 1] = {merchant, read_endpoint(ARGV[1] .. merchant)}
end
return {'OK', troubled}
