-- Expects call, queue_key, event_key and leased, the leased event as the queue has it. Defines lease_held().

-- Whether the lease is still held, and its event is there.
local function lease_held()
  return call('ZSCORE', queue_key, leased) and call('EXISTS', event_key) == 1
end
