local rate_key, override_key, session_key, event_key, queue_key, due_key, feed_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, history = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, sessions, holds, cancel_decisions

-- Cancels a session for its merchant. event_key is the event of its end, history that of the feed.

if result then
  return result .. quota
end
local s = sessions()
local fields = s.read(session_key, event_key, feed_key, 'h')
if not fields[RECORD] then
  return 'NOT_FOUND' .. quota
end
local holder, ends = read_hold(fields[#{SESSION_FIELDS} + 1])
local by_holder = decisions[s.status(fields)]
if not by_holder then
  return 'CORRUPT' .. quota
end
local decision = by_holder[holder]
if decision == 'applied' then
  local ending = {s = 'CANCELLED'}
  s.finish(session_key, event_key, feed_key, ending)
  fields[STATUS], fields[ENDED_AT] = ending.s, ending.e
end
return {'OK' .. quota, decision, fields, math.max(ends - now_ms, 0)}
