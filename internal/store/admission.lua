-- Decides whether a merchant's request is admitted, and answers if not. No function: it is run by every request.
-- KEYS[2] is the key's override, the last of KEYS its last use if that is to be written.
-- ARGV[3] is the claim, '<order of what this replica knows> <digest (hex) of the presented key>'. An order is '<when the current
-- digest was issued, in ms> <revision>': the first counts, and of one digest the second. ARGV[4] is what is out of the
-- ordinary, mostly nothing: 'D' if this replica's directory does not accept the key, 'B' if the merchant is not active, 'U' if
-- the key's last use is to be written.
-- Uses stored, the values of KEYS[1] and KEYS[2]. Leaves debt, see limiter.

if stored[2] or ARGV[4] ~= '' then
  local accepted = not string.find(ARGV[4], 'D', 1, true)
  -- An override is its order and ' <accepted digest> <its end in ms, or 0>' for each, or ' -' for none. It decides alone
  -- if it is as new as what the directory knows, or newer; else it is history.
  if stored[2] then
    local issued, revision, list = string.match(stored[2], '^(%d+) (%d+) (.+)$')
    if not issued then
      return 'CORRUPT'
    end
    local known_issued, known_revision, presented = string.match(ARGV[3], '^(%d+) (%d+) (%x+)$')
    local ahead = issued - known_issued
    if ahead == 0 then
      ahead = revision - known_revision
    end
    if ahead >= 0 then
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
  if string.find(ARGV[4], 'B', 1, true) then
    return 'BLOCKED'
  end
end

-- The limiter is charged only after the key is accepted, so that a dead key cannot use up a merchant's limit.
local paid_until = stored[1]
-- include: limiter

-- Kept for 90 days.
if ARGV[4] ~= '' and string.find(ARGV[4], 'U', 1, true) then
  call('SET', KEYS[#KEYS], now_ms, 'PX', 7776000000)
end
