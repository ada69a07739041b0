-- Counts this request (GCRA), or answers that it is over the limit. No function: it is run by every request.
-- KEYS[1] is the limiter's key; ARGV[1] and ARGV[2] are what one request and a full burst cost, in microseconds.
-- Uses paid_until, the moment by which all requests so far are paid for, or false. Leaves debt, that moment now.

local owed, refused = ARGV[1] + 0, false
local backlog = paid_until and (tonumber(paid_until) or 0) - now_us or 0
if backlog > 0 then
  local burst = ARGV[2] + 0
  if backlog + owed <= burst then
    owed = backlog + owed
  elseif backlog <= burst then -- nothing is owed for it
    return 'LIMITED ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. paid_until
  else
    -- The limit was lowered, or a failover set the clock back. Nobody owes more than a full burst.
    owed, refused = burst, true
  end
end
local debt = format('%d', now_us + owed)
-- PXAT, not PX: the entry never ends a rounding earlier than the debt it records. If that ends in this second, the entry ends with
-- the second, whose text is at hand.
if micros + owed < 999000 then
  call('SET', KEYS[1], debt, 'PXAT', clock[1] .. '999')
else
  local ends = now_us + owed + 999
  call('SET', KEYS[1], debt, 'PXAT', format('%d', (ends - ends % 1000) / 1000))
end
if refused then
  return 'LIMITED ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. debt
end
