-- Begins every script of a request: the clock and the rate limiter.
-- KEYS[1] is the limiter's key; ARGV[1] and ARGV[2] are what one request and a full burst cost, in microseconds.

local call = redis.call

-- The clock of Redis is the only one: those of the API's replicas need not agree.
local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now_ms = math.floor(now_us / 1000)

-- Numbers are given to commands as they are: Redis writes all 17 digits of them, and a time in microseconds
-- has 16. Lua's own tostring() and .. stop at 14, so no number is ever turned into text here.

-- PXAT, not PX: the entry then ends with the debt it records, and never a rounding earlier.
local function remember_debt(paid_until)
  call('SET', KEYS[1], paid_until, 'PXAT', math.ceil(paid_until / 1000))
end

-- Counts this request (GCRA). Takes the moment by which all requests so far are paid for, or false.
-- Returns how far that moment lies ahead, in microseconds, and the answer to give when over the limit.
local function count(paid_until)
  local cost, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
  local backlog = math.max((tonumber(paid_until) or 0) - now_us, 0)
  if backlog + cost <= burst then
    remember_debt(now_us + backlog + cost)
    return backlog + cost
  end
  if backlog > burst then
    -- The limit was lowered, or a failover set the clock back. Nobody owes more than a full burst.
    backlog = burst
    remember_debt(now_us + backlog)
  end
  return backlog, {'LIMITED', now_us, backlog}
end
