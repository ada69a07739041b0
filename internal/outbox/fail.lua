-- Counts a failed attempt, against the event and against the endpoint.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event, KEYS[4] the bucket's dead letters, KEYS[5] the
-- merchant's endpoint, KEYS[6] the bucket's unhealthy endpoints.
-- ARGV[1] the leased event as the queue has it, ARGV[2] the time to the next attempt in ms, negative: none, ARGV[3] the reason,
-- ARGV[4] where the attempt went, ARGV[5] how long an endpoint may fail in ms, ARGV[6] '1' if it says that it is gone, ARGV[7] the
-- merchant id, ARGV[8] the answer, ARGV[9] the merchant's name for people.

-- Whether this attempt disabled the endpoint.
local function endpoint_failed()
  local endpoint = read_endpoint(KEYS[5])
  if endpoint[DISABLED] then
    return false -- it is disabled already; only another target ends that
  end
  local since = endpoint[TARGET] == ARGV[4] and tonumber(endpoint[SINCE])
  if not since then
    since = now_ms
  end
  call('HSET', KEYS[5], 'target', ARGV[4], 'since', since, 'answer', ARGV[8])
  call('PEXPIRE', KEYS[5], endpoint_keep_ms)
  if ARGV[6] ~= '1' and now_ms - since < tonumber(ARGV[5]) then
    return false
  end
  call('HDEL', KEYS[5], 'resumed', 'reported')
  call('HSET', KEYS[5], 'disabled', now_ms, 'cause', ARGV[6] == '1' and 'gone' or 'failing')
  call('ZADD', KEYS[6], now_ms, ARGV[7])
  return true
end

if not held(KEYS[3], ARGV[1]) then
  return {'STALE'}
end
call('HINCRBY', KEYS[3], 'attempts', 1)
local disabled = endpoint_failed()
local dead = tonumber(ARGV[2]) < 0 or disabled
if dead then
  dead_letter(KEYS[4], KEYS[3], ARGV[1], ARGV[3], ARGV[8], ARGV[9])
else
  events.release(ARGV[1], now_ms + ARGV[2])
  call('HSET', KEYS[3], 'why', ARGV[3])
end
return {'OK', dead and 1 or 0, disabled and 1 or 0}
