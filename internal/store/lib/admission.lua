-- Decides whether a request is admitted, and counts it (GCRA). Straight-line, as every request runs it.
-- Expects clock; rate_key, and tat, its value: the theoretical arrival time in us; cost and burst, what one request and a full burst take in us;
-- override, the value of override_key; known_key, '<order of the record that this replica knows> <digest (hex) of the presented key>', with
-- flag 'E' also ' <its end in ms>'; and flags: 'D' if this replica's directory does not accept the key, 'C' if only the current key may ask,
-- 'I' if the merchant is not active, 'P' if the key has no permission for the request, 'E' if the directory accepts the key until an end, 'U' if
-- the last use is to be written to last_use_key; mostly ''. An order is '<when the current digest was issued, in ms> <revision>'.
-- Defines result, the first word of the reply to a request that is not admitted, and quota, what follows the first word:
-- ' <seconds> <microseconds> <tat>'.

local result
if override or flags ~= '' then
  local accepted = not string.find(flags, 'D', 1, true)
  if string.find(flags, 'E', 1, true) then
    accepted = now_ms < tonumber(string.match(known_key, '%d+$'))
  end
  -- An override is its order and ' <accepted digest> <its end in ms, or 0>' for each, the current one first, or ' -' for none. It
  -- decides alone if it is as new as what the directory knows, or newer; else it is history.
  if override then
    local issued, revision, list = string.match(override, '^(%d+) (%d+) ([^\t]+)')
    local known_issued, known_revision, presented = string.match(known_key, '^(%d+) (%d+) (%x+)')
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
  elseif not result then
    -- The key is used, whatever else rejects the request: a merchant may be active again before an overlap ends.
    -- The last uses of the digests of this ApiKey are published.DigestUses: '<tag> <seconds>' for each, the newest first.
    if string.find(flags, 'U', 1, true) then
      local tag = string.match(known_key, '^%d+ %d+ (%x%x%x%x%x%x%x%x)')
      local uses, room = tag .. ' ' .. clock[1], MAX_DIGEST_USES - 1
      for other, used in string.gmatch(string.match(call('MGET', last_use_key)[1] or '', '^[^\t]*'), '(%x+) (%d+)') do
        if other ~= tag and room > 0 then
          uses, room = uses .. ' ' .. other .. ' ' .. used, room - 1
        end
      end
      call('SET', last_use_key, uses, 'PX', USE_RETENTION_MS)
    end
    if string.find(flags, 'I', 1, true) then
      result = 'INACTIVE'
    elseif string.find(flags, 'P', 1, true) then
      result = 'FORBIDDEN'
    end
  end
end

-- The limiter is charged only after the key is accepted, so that a dead key cannot use up a merchant's limit.
if not result then
  local stored_tat, new_tat = tat and tonumber(tat), now_us + cost
  if stored_tat and stored_tat > now_us then
    new_tat = stored_tat + cost
    if new_tat > now_us + burst then
      -- A rejected request is not charged. But a TAT beyond a full burst, after the limit was lowered or a failover set the clock back, is cut.
      result = 'LIMITED'
      new_tat = stored_tat > now_us + burst and now_us + burst
    end
  end
  if new_tat then
    tat = format('%d', new_tat)
    -- PXAT, not PX: the entry never ends a rounding earlier than its TAT. If that is in this second, the entry ends with the second,
    -- whose text is at hand.
    local ends = clock[1] .. '999'
    if micros + new_tat - now_us >= 999000 then
      ends = format('%d', math.floor((new_tat + 999) / 1000))
    end
    call('SET', rate_key, tat, 'PXAT', ends)
  end
end
local quota = ' ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. (tat or '0')
