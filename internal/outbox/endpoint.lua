-- Follows the prelude in every script that asks how an endpoint stands. A healthy one has no hash.

-- For longer than any quiet merchant rests between two events.
local endpoint_keep_ms = 34560000000

-- The order is that of endpointOf in endpoint.go: where the attempts went, the first failure after the last success,
-- since when and why it is disabled, since when it is resumed, '1' if the last two have been passed on.
local function read_endpoint(key)
  return call('HMGET', key, 'target', 'since', 'disabled', 'cause', 'resumed', 'reported')
end
