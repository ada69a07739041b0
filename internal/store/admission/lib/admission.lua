-- Decides whether a request is admitted, and counts it (GCRA). The only part that reads and defines locals of its script:
-- every request runs it, and calls of functions would cost each 0.8 us. Uses clock.
--
-- Reads
--   rate_key, and tat, its value: the theoretical arrival time in us;
--   cost and burst: what one request and a full burst take in us;
--   override: the value of override_key, see below;
--   known_key: '<order of the record that this replica knows> <digest (hex) of the presented key>', with the flag `expires` also
--     ' <its end in ms>'. An order is '<when the current digest was issued, in ms> <revision>';
--   flags: words, mostly none. `unaccepted`: this replica's directory does not accept the key; `expires`: it accepts the key until
--     its end; `current_only`: a key in its overlap is rejected; `inactive`: the merchant is not active; `forbidden`: the key has
--     no permission for the request; `use`: write the last use to last_use_key.
-- Defines
--   result: nil, or the first word of the reply to a request that is not admitted: CORRUPT, REJECTED, INACTIVE, FORBIDDEN, LIMITED;
--   quota: what follows the first word of the reply, ' <seconds> <microseconds> <tat>'.
-- Changes tat.

local result
if override or flags ~= '' then
  local flagged = {}
  for flag in string.gmatch(flags, '%S+') do
    flagged[flag] = true
  end
  local accepted = not flagged.unaccepted
  if flagged.expires then
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
        if flagged.current_only then
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
    if flagged.use then
      local tag = string.match(known_key, '^%d+ %d+ (%x%x%x%x%x%x%x%x)')
      local uses, room = tag .. ' ' .. clock[1], const.MAX_DIGEST_USES - 1
      for other, used in string.gmatch(string.match(call('MGET', last_use_key)[1] or '', '^[^\t]*'), '(%x+) (%d+)') do
        if other ~= tag and room > 0 then
          uses, room = uses .. ' ' .. other .. ' ' .. used, room - 1
        end
      end
      call('SET', last_use_key, uses, 'PX', const.USE_RETENTION_MS)
    end
    if flagged.inactive then
      result = 'INACTIVE'
    elseif flagged.forbidden then
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
      -- A rejected request is not charged. But a TAT further beyond a full burst than a surcharge goes, after the limit was lowered
      -- or a failover set the clock back, is cut.
      result = 'LIMITED'
      local longest = now_us + burst + const.MAX_DEBT_US
      new_tat = stored_tat > longest and longest
    end
  end
  if new_tat then
    tat = format('%d', new_tat)
    -- PXAT, not PX: the entry never ends a rounding earlier than its TAT. If that is in this second, the entry ends with the
    -- second, whose text is at hand.
    local ends = clock[1] .. '999'
    if micros + new_tat - now_us >= 999000 then
      ends = format('%d', math.floor((new_tat + 999) / 1000))
    end
    call('SET', rate_key, tat, 'PXAT', ends)
  end
end
local quota = ' ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. (tat or '0')
