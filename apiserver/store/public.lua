-- Reads what a payer may see of a session; whoever has the id is admitted.
-- KEYS[2] is the session.

local backlog, over_limit = count(call('GET', KEYS[1]))
if over_limit then
  return over_limit
end
local fields = call('HMGET', KEYS[2], 's', 'x', 'e', 'n', 'a')
if not fields[1] then
  return {'NOT_FOUND', now_us, backlog, 0}
end
expire_if_due(KEYS[2], fields)
return {'OK', now_us, backlog, 0, fields[1], fields[4], fields[5]}
