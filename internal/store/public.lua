-- Reads what a payer may see of a session; whoever has the id is admitted.
-- KEYS[2] is the session, KEYS[3] the event that tells of its end, KEYS[4] the bucket's queue, KEYS[5] its due merchants.

-- include: prelude
local paid_until = call('GET', KEYS[1])
-- include: limiter
local fields = call('HMGET', KEYS[2], 's', 'x', 'f')
if not fields[3] then
  return 'NOT_FOUND '
  -- include: admitted
end
-- include: due
if due then
  local queue_key, due_key = KEYS[4], KEYS[5]
  -- include: queue
  -- include: event
  -- include: expiry
  expire_if_due(KEYS[2], KEYS[3], {fields[1], fields[2]})
  fields[1] = 'EXPIRED'
end
local head = 'OK '
-- include: admitted
return {head, fields[1], fields[3]}
