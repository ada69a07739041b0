-- Defines requests_left() and surcharge(), which charge an admitted request as several, for what it makes Redis do. Uses clock.
-- tat, cost and burst are as in lib/admission.

-- Returns how many more requests the limit has room for: a script that can read less asks first.
local function requests_left(tat, cost, burst)
  return math.floor((now_us + burst - tat) / cost)
end

-- Charges so many more requests, and returns the quota after that. What is read whole is charged beyond the limit too, else it would
-- cost nothing of a limit that is used up; at most so far that the next requests wait const.MAX_DEBT_US longer.
local function surcharge(rate_key, tat, cost, burst, requests)
  requests = math.min(requests, requests_left(tat, cost, burst + const.MAX_DEBT_US))
  if requests > 0 then
    tat = format('%d', tat + requests * cost)
    call('SET', rate_key, tat, 'PXAT', format('%d', math.floor((tat + 999) / 1000)))
  end
  return ' ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. tat
end
