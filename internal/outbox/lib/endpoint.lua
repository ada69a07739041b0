-- Defines read_endpoint() and unhealthy(). Uses clock.

-- Returns the fields of an endpoint, in the order of const.ENDPOINT_FIELDS.
local function read_endpoint(key)
  return call('HMGET', key, unpack(const.ENDPOINT_FIELDS))
end

-- Reports whether an endpoint, given by its fields, is unhealthy. One that only fails for long enough is, whatever the reason.
local function unhealthy(endpoint)
  local since = tonumber(endpoint[at.SINCE])
  return endpoint[at.DISABLED] or endpoint[at.PERMANENT] or since and now_ms - since >= const.UNHEALTHY_AFTER_MS
end
