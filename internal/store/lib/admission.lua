-- Decides whether a request is admitted, and counts it (GCRA). Straight-line, as every request runs it.
-- Expects clock; paid_until, the value of KEYS[1], by when all requests so far are paid for in us; override, that of KEYS[2];
-- and flags: 'D' if this replica's directory does not accept the key, 'C' if only the current key may ask, 'I' if the merchant is not
-- active, 'E' if the directory accepts the key until an end, 'U' if the key's last use is to be written to the last of KEYS; mostly ''.
-- ARGV[1] and ARGV[2] are what one request and a full burst cost in us; ARGV[3] is '<order of the record this replica knows> <digest
-- (hex) of the presented key>', with flag 'E' also ' <its end in ms>'. An order is '<when the current digest was issued, in ms> <revision>'.
-- Defines result, the first word of the reply to a request that is not admitted, and moment, what follows the first word:
-- ' <seconds> <microseconds> <by when all requests are paid for, in us>'.

local result
if override or flags ~= '' then
  local accepted = not string.find(flags, 'D', 1, true)
  if string.find(flags, 'E', 1, true) then
    accepted = now_ms < tonumber(string.match(ARGV[3], '%d+$'))
  end
  -- An override is its order and ' <accepted digest> <its end in ms, or 0>' for each, the current one first, or ' -' for none. It
  -- decides alone if it is as new as what the directory knows, or newer; else it is history.
  if override then
    local issued, revision, list = string.match(override, '^(%d+) (%d+) (.+)$')
    local known_issued, known_revision, presented = string.match(ARGV[3], '^(%d+) (%d+) (%x+)')
    if not issued then
      result = 'CORRUPT'
    elseif issued - known_issued > 0 or (issued - known_issued == 0 and revision - known_revision >= 0) then
      accepted = false
      for digest, ends in string.gmatch(list, '(%x+) (%d+)') do
        if digest == presented and (ends == '0' or now_ms < tonumber(ends)) then
          accepted = true
        end
        if string.find(flags, 'C', 1, true) then
          break
        end
      end
    end
  end
  if not result and not accepted then
    result = 'REJECTED'
  elseif not result and string.find(flags, 'I', 1, true) then
    result = 'INACTIVE'
  end
end

-- The limiter is charged only after the key is accepted, so that a dead key cannot use up a merchant's limit.
local debt = '0'
if not result then
  local owed = ARGV[1] + 0
  local backlog = paid_until and (tonumber(paid_until) or 0) - now_us or 0
  if backlog > 0 then
    local burst = ARGV[2] + 0
    if backlog + owed <= burst then
      owed = backlog + owed
    else
      -- Nothing is owed for a refused request. Unless the limit was lowered, or a failover set the clock back: nobody owes more than a
      -- full burst.
      result = 'LIMITED'
      owed = backlog > burst and burst
    end
  end
  if owed then
    debt = format('%d', now_us + owed)
    -- PXAT, not PX: the entry never ends a rounding earlier than the debt it records. If that ends in this second, the entry ends
    -- with the second, whose text is at hand.
    local ends = clock[1] .. '999'
    if micros + owed >= 999000 then
      ends = format('%d', math.floor((now_us + owed + 999) / 1000))
    end
    call('SET', KEYS[1], debt, 'PXAT', ends)
  else
    debt = paid_until
  end
  -- The last use is kept for 90 days.
  if flags ~= '' and not result and string.find(flags, 'U', 1, true) then
    call('SET', KEYS[#KEYS], now_ms, 'PX', 7776000000)
  end
end
local moment = ' ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. debt
