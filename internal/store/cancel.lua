-- Cancels a session for its merchant.
-- KEYS[3] is the session, KEYS[4] the event that tells of its end, KEYS[5] the bucket's queue, KEYS[6] its due merchants; ARGV[5] the merchant id, ARGV[6] the rules.

-- include: prelude
local stored = call('MGET', KEYS[1], KEYS[2])
-- include: admission
local queue_key, due_key = KEYS[5], KEYS[6]
-- include: queue
-- include: event
-- include: expiry
-- include: transition
local fields = read_session(KEYS[3], KEYS[4])
-- Two merchants may share a bucket, so the key alone does not tell whose session this is.
local owner = ARGV[5] .. ' '
if not fields[4] or string.sub(fields[4], 1, #owner) ~= owner then
  return 'NOT_FOUND '
  -- include: admitted
end
local verdict = verdict_of(ARGV[6], 'unknown', status_of(fields), true)
if not verdict then
  return 'CORRUPT'
end
if verdict == 'applied' then
  end_session(KEYS[3], KEYS[4], {s = 'CANCELLED', e = now_ms})
  fields = read_session(KEYS[3], KEYS[4])
end
local head = 'OK '
-- include: admitted
return {head, verdict, fields}
