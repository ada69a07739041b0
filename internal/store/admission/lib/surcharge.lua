-- Defines requests_left() and surcharge(), which charge an admitted request as several, for what it makes Redis do. Uses clock.
-- tat, cost and burst are as in lib/admission. No request goes into debt, which the next refused one would cut: so ask first how
-- many requests are left.

-- Returns how many more requests the limit has room for.
local function requests_left(tat, cost, burst)
  return math.floor((now_us + burst - tat) / cost)
end

-- Charges so many more requests, and returns the quota after that.
local function surcharge(rate_key, tat, cost, requests)
  if requests > 0 then
    tat = format('%d', tat + requests * cost)
    call('SET', rate_key, tat, 'PXAT', format('%d', math.floor((tat + 999) / 1000)))
  end
  return ' ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. tat
end
