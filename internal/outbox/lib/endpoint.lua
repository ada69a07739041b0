-- Expects clock. Defines read_endpoint(), unhealthy() and endpoint_keep_ms.

-- Longer than any quiet merchant rests between two events.
local endpoint_keep_ms = 34560000000

-- An endpoint that only fails for this long is unhealthy, whatever the reason.
local unhealthy_after_ms = UNHEALTHY_AFTER

local function read_endpoint(key)
  return call('HMGET', key, ENDPOINT_FIELDS)
end

local function unhealthy(endpoint)
  local since = tonumber(endpoint[SINCE])
  return endpoint[DISABLED] or endpoint[PERMANENT] or since and now_ms - since >= unhealthy_after_ms
end
