-- Follows the prelude in every script of a request: the rate limiter.
-- KEYS[1] is the limiter's key; ARGV[1] and ARGV[2] are what one request and a full burst cost, in microseconds.

-- Counts this request (GCRA). Takes the moment by which all requests so far are paid for, or false.
-- Returns how far that moment lies ahead, in microseconds, and the answer to give when over the limit.
local function count(paid_until)
  local cost, burst = ARGV[1] + 0, ARGV[2] + 0
  local backlog = (tonumber(paid_until) or 0) - now_us
  if backlog < 0 then
    backlog = 0
  end
  local refusal
  if backlog + cost <= burst then
    backlog = backlog + cost
  elseif backlog <= burst then
    return backlog, {'LIMITED', now_us, backlog} -- nothing is owed for it
  else
    -- The limit was lowered, or a failover set the clock back. Nobody owes more than a full burst.
    backlog = burst
    refusal = {'LIMITED', now_us, backlog}
  end
  -- PXAT, not PX: the entry then ends with the debt it records, and never a rounding earlier.
  local debt = now_us + backlog
  local ends = debt + 999
  call('SET', KEYS[1], format('%d', debt), 'PXAT', format('%d', (ends - ends % 1000) / 1000))
  return backlog, refusal
end
