-- Charges an admitted request as several, for what it makes Redis do. Expects clock and admission. Defines room() and surcharge().
-- No request goes into debt, which the next refused one would cut: so ask first how much room there is.

-- How many more requests the limit has room for.
local function room()
  return math.floor((now_us + burst - tat) / cost)
end

local function surcharge(requests)
  if requests > 0 then
    tat = format('%d', tat + requests * cost)
    call('SET', rate_key, tat, 'PXAT', format('%d', math.floor((tat + 999) / 1000)))
    quota = ' ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. tat
  end
end
