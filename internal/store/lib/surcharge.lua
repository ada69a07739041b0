-- Charges an admitted request as several, for what it made Redis do. Expects clock and admission. Defines surcharge().
-- What a full burst has no room for is not charged.

local function surcharge(requests)
  if requests > 0 then
    tat = format('%d', math.min(tat + requests * cost, now_us + burst))
    call('SET', rate_key, tat, 'PXAT', format('%d', math.floor((tat + 999) / 1000)))
    quota = ' ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. tat
  end
end
