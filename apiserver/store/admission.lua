-- Decides whether a merchant's request is admitted, and answers if not. No function: it is run by every request.
-- KEYS[2] is the key's override, KEYS[3] its last use.
-- ARGV[3] is the claim, '<revision this replica knows> <digest (hex) of the presented key>'. ARGV[4] is what this replica's
-- directory says, two flags: '1' if it accepts the key, '1' if the merchant is not active.
-- Uses stored, the values of KEYS[1..3]. Leaves admitted, the end of each answer:
-- '<seconds> <microseconds> <debt, see limiter> <last use in ms, or 0>'.

if stored[2] or ARGV[4] ~= '10' then
  local accepted = string.sub(ARGV[4], 1, 1) == '1'
  -- An override is '<revision>' and ' <accepted digest> <its end in ms, or 0>' for each, or ' -' for none. It decides alone
  -- if it is as new as what the directory knows, or newer; else it is history.
  if stored[2] then
    local revision, list = string.match(stored[2], '^(%d+) (.+)$')
    if not revision then
      return 'CORRUPT'
    end
    local known, presented = string.match(ARGV[3], '^(%S+) (%x+)$')
    if tonumber(revision) >= tonumber(known) then
      accepted = false
      for digest, ends in string.gmatch(list, '(%x+) (%d+)') do
        if digest == presented and (ends == '0' or now_ms < tonumber(ends)) then
          accepted = true
        end
      end
    end
  end
  if not accepted then
    return 'REJECTED'
  end
  if string.sub(ARGV[4], 2, 2) == '1' then
    return 'BLOCKED'
  end
end

-- The limiter is charged only after the key is accepted, so that a dead key cannot use up a merchant's limit.
local paid_until = stored[1]
-- include: limiter

local used = stored[3] and tonumber(stored[3]) or 0
-- Once a minute is exact enough for people, and spares nearly every request a write. Kept for 90 days.
if now_ms - used >= 60000 then
  call('SET', KEYS[3], now_ms, 'PX', 7776000000)
end
local admitted = clock[1] .. ' ' .. clock[2] .. ' ' .. debt .. ' ' .. (stored[3] or '0')
