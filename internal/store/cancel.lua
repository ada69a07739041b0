local rate_key, override_key, session_key, ended_key, queue_key, due_key, feed_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, history = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, sessions, holds, cancel_decisions

-- Cancels a session for its merchant.
-- lib/admission describes rate_key, override_key, last_use_key and the first four arguments. ended_key is the event of the
-- session's end, history is of the feed.
-- Returns '<result><quota>', 'NOT_FOUND<quota>', 'CORRUPT<quota>', or {'OK<quota>', decision, fields of the session, for how many
-- ms a payment still holds it}.

if result then
  return result .. quota
end
local sessions = open_sessions(queue_key, due_key, history)
local fields = sessions.read(session_key, ended_key, feed_key, field.HOLD)
if not fields[at.RECORD] then
  return 'NOT_FOUND' .. quota
end
local holder, ends = read_hold(fields[#const.SESSION_FIELDS + 1])
local by_holder = decisions[sessions.status(fields)]
if not by_holder then
  return 'CORRUPT' .. quota
end
local decision = by_holder[holder]
if decision == 'applied' then
  fields[at.ENDED_AT] = sessions.finish(session_key, ended_key, feed_key, 'CANCELLED', {})
  fields[at.STATUS] = 'CANCELLED'
end
return {'OK' .. quota, decision, fields, math.max(ends - now_ms, 0)}
