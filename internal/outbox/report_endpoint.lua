local endpoint_key, watched_key, account_dead_key = unpack(KEYS)
local merchant, healthy, since, reported, last_reason, last_at, changed, reason, pending, dead = unpack(ARGV)
-- uses: clock, endpoint, budget

-- Remembers what was reported of an endpoint, and watches it while events were reported as pending. Stops watching one that is healthy and
-- has nothing left to report.
-- healthy is '1' if the caller found it healthy since then. reported is '1' if there is a report, and the arguments behind it are of that: the
-- reason and the time of the one before it, '1' if it is of a change, its reason, and its numbers of events and dead letters.

local endpoint = read_endpoint(endpoint_key)
if reported == '1' then
  if (endpoint[REPORTED] or '') ~= last_reason or (endpoint[REPORTED_AT] or '') ~= last_at then
    -- Another dispatcher reported meanwhile. It is unknown which report came last, so another one must follow.
    call('HDEL', endpoint_key, 'reported')
    call('ZADD', watched_key, 'NX', now_ms, merchant)
    return {'OK'}
  end
  call('HSET', endpoint_key, 'reported', reason, 'reported_at', now_ms, 'pending', pending, 'dead', dead)
  endpoint[PENDING], endpoint[DEAD] = pending, dead
  if changed == '1' then
    charge_report()
  end
  call('PEXPIRE', endpoint_key, endpoint_keep_ms)
  if tonumber(pending) > 0 then
    call('ZADD', watched_key, 'NX', now_ms, merchant)
  end
end
if healthy ~= '1' or (endpoint[HEALTHY] or '') ~= since then
  return {'OK'} -- perhaps its first delivery came after the caller has read it
end
if endpoint[SINCE] or endpoint[PERMANENT] or endpoint[DISABLED] or endpoint[CHANGED] or (tonumber(endpoint[PENDING]) or 0) > 0 then
  return {'OK'}
end
local shown, letters = (tonumber(endpoint[DEAD]) or 0) > 0, call('ZCOUNT', account_dead_key, now_ms - EVENT_RETENTION_MS, '+inf') > 0
if shown == letters then
  call('ZREM', watched_key, merchant)
end
return {'OK'}
