-- Follows the prelude in every script of a request: the rate limiter.
-- KEYS[1] is the limiter's key; ARGV[1] and ARGV[2] are what one request and a full burst cost, in microseconds.

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
