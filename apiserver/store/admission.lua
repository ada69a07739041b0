-- Follows the limiter in every script of a merchant's request: whether the caller is admitted.
-- KEYS[2] is the key's override, KEYS[3] its last use.
-- ARGV[3] revision this replica knows, ARGV[4] digest (hex) of the presented key, ARGV[5] '1' if this
-- replica's directory accepts it, ARGV[6] '1' if the merchant is not active.

-- What is wrong with the presented key; nil when it is accepted. An override is
-- '<revision>' and ' <accepted digest> <its end in ms, or 0>' for each, or ' -' for none. It decides alone if
-- it is as new as what the directory knows, or newer; else it is history.
local function fault(override)
  if override then
    local revision, accepted = string.match(override, '^(%d+) (.+)$')
    if not revision then
      return 'CORRUPT'
    end
    if tonumber(revision) >= tonumber(ARGV[3]) then
      for digest, ends in string.gmatch(accepted, '(%x+) (%d+)') do
        if digest == ARGV[4] and (ends == '0' or now_ms < tonumber(ends)) then
          return nil
        end
      end
      return 'REJECTED'
    end
  end
  return ARGV[5] ~= '1' and 'REJECTED' or nil
end

-- Takes the values of KEYS[1..3]. Returns the answer to give when the caller is not admitted; else nil, the
-- backlog of count() and the key's last use in ms. The limiter is charged only after the key is accepted, so
-- that a dead key cannot use up a merchant's limit.
local function admit(paid_until, override, used)
  local refusal = fault(override) or (ARGV[6] == '1' and 'BLOCKED')
  if refusal then
    return {refusal}
  end
  local backlog, over_limit = count(paid_until)
  if over_limit then
    return over_limit
  end
  used = tonumber(used) or 0
  -- Once a minute is exact enough for people, and spares nearly every request a write. Kept for 90 days.
  if now_ms - used >= 60000 then
    call('SET', KEYS[3], now_ms, 'PX', 7776000000)
  end
  return nil, backlog, used
end
