-- Remembers what was reported of an endpoint, and watches it while events were reported as pending. Stops watching one that is healthy and
-- has nothing left to report.
-- KEYS[1] is the endpoint, KEYS[2] the bucket's watched endpoints, KEYS[3] the merchant's dead letters. healthy is '1' if the caller found it
-- healthy since then. The last six arguments are of a report: the reason and the time of the one before it, '1' if it is of a change, its
-- reason, and its numbers of events and dead letters.

local merchant, dead_keep, healthy, since, reported, last_reason, last_at, changed, reason, pending, dead = unpack(ARGV)
local endpoint = read_endpoint(KEYS[1])
if reported == '1' then
  if (endpoint[REPORTED] or '') ~= last_reason or (endpoint[REPORTED_AT] or '') ~= last_at then
    -- Another dispatcher reported meanwhile. Nobody knows which report came last, so there must be another one.
    call('HDEL', KEYS[1], 'reported')
    call('ZADD', KEYS[2], 'NX', now_ms, merchant)
    return {'OK'}
  end
  call('HSET', KEYS[1], 'reported', reason, 'reported_at', now_ms, 'pending', pending, 'dead', dead)
  endpoint[PENDING], endpoint[DEAD] = pending, dead
  if changed == '1' then
    pay_report(KEYS[1])
  end
  call('PEXPIRE', KEYS[1], endpoint_keep_ms)
  if tonumber(pending) > 0 then
    call('ZADD', KEYS[2], 'NX', now_ms, merchant)
  end
end
if healthy ~= '1' or (endpoint[HEALTHY] or '') ~= since then
  return {'OK'} -- perhaps its first delivery came after the caller has read it
end
if endpoint[SINCE] or endpoint[DISABLED] or endpoint[CHANGED] or (tonumber(endpoint[PENDING]) or 0) > 0 then
  return {'OK'}
end
local shown, letters = (tonumber(endpoint[DEAD]) or 0) > 0, call('ZCOUNT', KEYS[3], now_ms - dead_keep, '+inf') > 0
if shown == letters then
  call('ZREM', KEYS[2], merchant)
end
return {'OK'}
