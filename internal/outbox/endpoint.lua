--- endpoint
-- Expects clock. Defines read_endpoint(), unhealthy() and endpoint_keep_ms.

-- Longer than any quiet merchant rests between two events.
local endpoint_keep_ms = 34560000000

-- An endpoint that only fails for this long is unhealthy, whatever the reason.
local unhealthy_after_ms = UNHEALTHY_AFTER

local function read_endpoint(key)
  return call('HMGET', key, ENDPOINT_FIELDS)
end

local function unhealthy(endpoint)
  local since = tonumber(endpoint[SINCE])
  return endpoint[DISABLED] or endpoint[PERMANENT] or since and now_ms - since >= unhealthy_after_ms
end

--- pay_report
-- Expects clock and endpoint. Defines pay_report(endpoint_key).

-- A report of a change to the status of a Merchant, whatever it is about, uses up a part of one budget.
local function pay_report(key)
  local paid = tonumber(call('HGET', key, 'paid')) or 0
  call('HSET', key, 'paid', math.max(now_ms, paid) + REPORT_INTERVAL)
  call('PEXPIRE', key, endpoint_keep_ms)
end

--- resume_endpoint
-- Forgets how an endpoint fared at another target, so that events are sent to it (again).
-- KEYS[1] is the endpoint, KEYS[2] the bucket's watched endpoints; ARGV[1] the target, '' for the present one of a disabled endpoint,
-- ARGV[2] the merchant id.

local endpoint = read_endpoint(KEYS[1])
local target = ARGV[1] ~= '' and ARGV[1] or endpoint[DISABLED] and endpoint[TARGET]
if not target or not endpoint[TARGET] or ARGV[1] == endpoint[TARGET] then
  return {'OK', 0}
end
call('HDEL', KEYS[1], 'since', 'permanent', 'disabled', 'cause', 'healthy')
call('HSET', KEYS[1], 'target', target, 'changed', now_ms)
if unhealthy(endpoint) then
  call('HSET', KEYS[1], 'recovered', now_ms)
end
call('PEXPIRE', KEYS[1], endpoint_keep_ms)
call('ZADD', KEYS[2], now_ms, ARGV[2])
return {'OK', 1}

--- read_endpoints
-- Reads how endpoints of a bucket fare, and how many events and dead letters each merchant has. All keys are only read.
-- KEYS[1] is the bucket's watched endpoints, KEYS[2] its queue. ARGV[1] and ARGV[2] what the keys of the bucket's endpoints and of
-- merchants' dead letters begin with, ARGV[3] how long dead letters are kept in ms, from ARGV[4] on merchants; none: those watched.

local merchants = {unpack(ARGV, 4)}
if #merchants == 0 then
  merchants = call('ZRANGE', KEYS[1], 0, -1)
end
local rows = {}
for i, merchant in ipairs(merchants) do
  local pending = call('ZLEXCOUNT', KEYS[2], '[' .. merchant .. ':', '(' .. merchant .. ';')
  local dead = call('ZCOUNT', ARGV[2] .. merchant, now_ms - ARGV[3], '+inf')
  rows[i] = {merchant, pending, dead, read_endpoint(ARGV[1] .. merchant)}
end
return {'OK', now_ms, rows}

--- report_endpoint
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
