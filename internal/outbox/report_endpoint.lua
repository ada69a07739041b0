local endpoint_key, watched_key, account_dead_key = unpack(KEYS)
local merchant, healthy, since, reported, last_reason, last_at, changed, reason, pending, dead = unpack(ARGV)
-- uses: clock, endpoint, budget, full

-- Remembers what was reported of an endpoint, and watches it while events were reported as pending. Stops watching one that is
-- healthy and has nothing left to report.
-- watched_key lists the endpoints with something to report, account_dead_key the merchant's dead letters. healthy is 'yes' if the
-- caller found it healthy since then. reported is 'yes' if there is a report, and the arguments behind it are of the report: the
-- reason and the time of the one before it, 'yes' if it is of a change, its reason, and its numbers of events and dead letters.
-- Returns {'OK'}.

write_when_full('HDEL', endpoint_key) -- what is wrong with a webhook is shown while its events fill Redis
local endpoint = read_endpoint(endpoint_key)
if reported == 'yes' then
  if (endpoint[at.REPORTED] or '') ~= last_reason or (endpoint[at.REPORTED_AT] or '') ~= last_at then
    -- Another dispatcher reported meanwhile. It is unknown which report came last, so another one must follow.
    call('HDEL', endpoint_key, field.REPORTED)
    call('ZADD', watched_key, 'NX', now_ms, merchant)
    return {'OK'}
  end
  call('HSET', endpoint_key, field.REPORTED, reason, field.REPORTED_AT, now_ms, field.PENDING, pending, field.DEAD, dead)
  endpoint[at.PENDING], endpoint[at.DEAD] = pending, dead
  if changed == 'yes' then
    charge_report(endpoint_key)
  end
  call('PEXPIRE', endpoint_key, const.ENDPOINT_KEEP_MS)
  if tonumber(pending) > 0 then
    call('ZADD', watched_key, 'NX', now_ms, merchant)
  end
end
if healthy ~= 'yes' or (endpoint[at.HEALTHY] or '') ~= since then
  return {'OK'} -- perhaps its first delivery came after the caller has read it
end
local failing = endpoint[at.SINCE] or endpoint[at.PERMANENT] or endpoint[at.DISABLED]
if failing or endpoint[at.CHANGED] or (tonumber(endpoint[at.PENDING]) or 0) > 0 then
  return {'OK'}
end
local shown = (tonumber(endpoint[at.DEAD]) or 0) > 0
local letters = call('ZCOUNT', account_dead_key, now_ms - const.EVENT_RETENTION_MS, '+inf') > 0
if shown == letters then
  call('ZREM', watched_key, merchant)
end
return {'OK'}
