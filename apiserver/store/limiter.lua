-- Counts this request (GCRA), or answers that it is over the limit. No function: it is run by every request.
-- KEYS[1] is the limiter's key; ARGV[1] and ARGV[2] are what one request and a full burst cost, in microseconds.
-- Uses paid_until, the moment by which all requests so far are paid for, or false. Leaves debt, that moment now.

local backlog = (paid_until and tonumber(paid_until) or now_us) - now_us
if backlog < 0 then
  backlog = 0
end
local paid, burst = backlog + ARGV[1], ARGV[2] + 0
if paid > burst and backlog <= burst then -- nothing is owed for it
  return 'LIMITED ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. format('%d', now_us + backlog)
end
-- A backlog beyond the burst: the limit was lowered, or a failover set the clock back. Nobody owes more than a full burst.
local moment = now_us + (paid > burst and burst or paid)
local debt, ends = format('%d', moment), moment + 999
-- PXAT, not PX: the entry then ends with the debt it records, and never a rounding earlier.
call('SET', KEYS[1], debt, 'PXAT', format('%d', (ends - ends % 1000) / 1000))
if paid > burst then
  return 'LIMITED ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. debt
end
