-- Counts a failed attempt, against the event and against the endpoint.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event, KEYS[4] the bucket's dead letters, KEYS[5] the
-- merchant's dead letters, KEYS[6] its endpoint, KEYS[7] the bucket's watched endpoints.
-- ARGV[1] the leased event as the queue has it, ARGV[2] the time to the next attempt in ms, negative: none, ARGV[3] the reason,
-- ARGV[4] where the attempt went, ARGV[5] how long an endpoint may fail in ms, ARGV[6] '1' if it says that it is gone, ARGV[7] the
-- merchant id, ARGV[8] the answer, ARGV[9] the merchant's name for people, ARGV[10] the reason for people, ARGV[11] '1' if retrying
-- cannot mend it.

-- Whether this attempt disabled the endpoint.
local function endpoint_failed()
  local key, target = KEYS[6], ARGV[4]
  local endpoint = read_endpoint(key)
  if endpoint[DISABLED] then
    return false -- it is disabled already; only another target ends that
  end
  if endpoint[TARGET] ~= target then -- what another target did does not count
    call('HDEL', key, 'since', 'permanent', 'healthy')
    endpoint[SINCE], endpoint[PERMANENT] = false, false
  end
  local since = tonumber(endpoint[SINCE]) or now_ms
  call('HDEL', key, 'changed')
  call('HSET', key, 'target', target, 'since', since, 'failed', now_ms, 'reason', ARGV[10], 'answer', ARGV[8])
  if ARGV[11] == '1' and not endpoint[PERMANENT] then
    call('HSET', key, 'permanent', now_ms)
  end
  call('PEXPIRE', key, endpoint_keep_ms)
  call('ZADD', KEYS[7], 'NX', now_ms, ARGV[7])
  if ARGV[6] ~= '1' and now_ms - since < tonumber(ARGV[5]) then
    return false
  end
  call('HSET', key, 'disabled', now_ms, 'cause', ARGV[6] == '1' and 'gone' or 'failing')
  return true
end

if not held(KEYS[3], ARGV[1]) then
  return {'STALE'}
end
call('HINCRBY', KEYS[3], 'attempts', 1)
local disabled = endpoint_failed()
local dead, excess = tonumber(ARGV[2]) < 0 or disabled, {}
if dead then
  excess = dead_letter(KEYS[4], KEYS[5], KEYS[3], ARGV[1], ARGV[3], ARGV[8], ARGV[9])
else
  events.put_back(ARGV[1], now_ms + ARGV[2])
  call('HSET', KEYS[3], 'why', ARGV[3])
end
return {'OK', dead and 1 or 0, disabled and 1 or 0, excess}
