-- Cancels a session for its merchant.
-- KEYS[3] is the session, KEYS[4] the event of its end, KEYS[5] the bucket's queue, KEYS[6] its due merchants, KEYS[7] the
-- feed; ARGV[5] the rules, ARGV[6] the history of the feed.

if result then
  return result .. moment
end
local s = sessions(KEYS[5], KEYS[6], ARGV[6])
local fields = s.read(KEYS[3], KEYS[4], KEYS[7])
if not fields[RECORD] then
  return 'NOT_FOUND' .. moment
end
local decision = s.decide(ARGV[5], 'unknown', fields, true)
if not decision then
  return 'CORRUPT' .. moment
end
if decision == 'applied' then
  local ending = {s = 'CANCELLED'}
  s.finish(KEYS[3], KEYS[4], KEYS[7], ending)
  fields[STATUS], fields[ENDED_AT] = ending.s, ending.e
end
return {'OK' .. moment, decision, fields}
