-- Expects clock. Defines read_endpoint() and endpoint_keep_ms. A healthy endpoint has no hash.

-- Longer than any quiet merchant rests between two events.
local endpoint_keep_ms = 34560000000

local function read_endpoint(key)
  return call('HMGET', key, ENDPOINT_FIELDS)
end
