-- Remembers what was reported of an endpoint, and stops watching one that is healthy.
-- KEYS[1] is the endpoint, KEYS[2] the bucket's watched endpoints. ARGV[1] the merchant id, ARGV[2] '1' if the endpoint was found
-- healthy, ARGV[3] '1' if something was reported, ARGV[4] what was reported before, ARGV[5] what is now, ARGV[6] and ARGV[7] the
-- reported numbers of pending events and dead letters.

local endpoint = read_endpoint(KEYS[1])
if ARGV[3] == '1' then
  if (endpoint[REPORTED] or '') ~= ARGV[4] then
    -- Another dispatcher reported meanwhile. Nobody knows which report came last, so there must be another one.
    call('HDEL', KEYS[1], 'reported')
    call('ZADD', KEYS[2], 'NX', now_ms, ARGV[1])
    return {'OK'}
  end
  call('HSET', KEYS[1], 'reported', ARGV[5], 'reported_at', now_ms, 'pending', ARGV[6], 'dead', ARGV[7])
  if ARGV[4] ~= ARGV[5] then
    call('HSET', KEYS[1], 'paid', math.max(now_ms, tonumber(endpoint[PAID]) or 0) + REPORT_INTERVAL)
  end
  call('PEXPIRE', KEYS[1], endpoint_keep_ms)
end
if ARGV[2] == '1' and not (endpoint[SINCE] or endpoint[DISABLED] or endpoint[CHANGED]) then
  call('ZREM', KEYS[2], ARGV[1])
end
return {'OK'}
