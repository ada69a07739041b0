-- Defines lease_held(). Uses clock.

-- Reports whether the lease of an event is still held, and the event is there. leased is the leased event as the queue has it.
local function lease_held(queue_key, leased, event_key)
  return call('ZSCORE', queue_key, leased) and call('EXISTS', event_key) == 1
end
