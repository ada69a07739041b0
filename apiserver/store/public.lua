-- Reads what a payer may see of a session; whoever has the id is admitted.
-- KEYS[2] is the session.

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
  -- include: event
  -- include: expiry
  expire_if_due(KEYS[2], {fields[1], fields[2]})
  fields[1] = 'EXPIRED'
end
local head = 'OK '
-- include: admitted
return {head, fields[1], fields[3]}
