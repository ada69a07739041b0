-- Counts a failed attempt, against the event and against the endpoint.
-- KEYS[1] is the bucket's due events, KEYS[2] the event, KEYS[3] the bucket's dead letters, KEYS[4] the merchant's
-- endpoint, KEYS[5] the bucket's troubled endpoints.
-- ARGV[1] the event's id, ARGV[2] the token of the lease, ARGV[3] the time to the next attempt in ms, negative: none,
-- ARGV[4] the reason, ARGV[5] where the attempt went, ARGV[6] how long an endpoint may fail in ms, ARGV[7] '1' if it
-- says that it is gone, ARGV[8] the merchant id.

-- include: prelude
-- include: dead
-- include: endpoint

-- Whether this attempt disabled the endpoint.
local function endpoint_failed()
  local endpoint = read_endpoint(KEYS[4])
  if endpoint[3] then
    return false -- it is disabled already; only another target ends that
  end
  local since = endpoint[1] == ARGV[5] and tonumber(endpoint[2])
  if not since then
    since = now_ms
    call('HSET', KEYS[4], 'target', ARGV[5], 'since', since)
  end
  call('PEXPIRE', KEYS[4], endpoint_keep_ms)
  if ARGV[7] ~= '1' and now_ms - since < tonumber(ARGV[6]) then
    return false
  end
  call('HDEL', KEYS[4], 'resumed', 'told')
  call('HSET', KEYS[4], 'disabled', now_ms, 'cause', ARGV[7] == '1' and 'gone' or 'failing')
  call('ZADD', KEYS[5], now_ms, ARGV[8])
  return true
end

if not held(KEYS[2], ARGV[2]) then
  return {'STALE'}
end
call('HINCRBY', KEYS[2], 'attempts', 1)
local disabled = endpoint_failed()
local buried = tonumber(ARGV[3]) < 0 or disabled
if buried then
  bury(KEYS[1], KEYS[3], KEYS[2], ARGV[1], ARGV[4])
else
  call('ZADD', KEYS[1], now_ms + ARGV[3], ARGV[1])
  call('HDEL', KEYS[2], 'lease')
  call('HSET', KEYS[2], 'why', ARGV[4])
end
return {'OK', buried and 1 or 0, disabled and 1 or 0}
