-- Defines target_outdated() and note_target(). Uses clock and endpoint.
--
-- A target is the fingerprint of where a dispatcher sends the events of a merchant. generation is the Merchant's, as far as the
-- dispatcher knows, '0': unknown. The dispatcher knows all that was published until lag ms ago.

-- Reports whether another dispatcher has noted another target of a higher generation of the Merchant. The caller's target is the
-- newer one, though of a lower generation, if the other one was noted more than lag ms ago: the Merchant was restored from a
-- backup.
local function target_outdated(endpoint, target, generation, lag)
  local newer = endpoint[at.TARGET] and endpoint[at.TARGET] ~= target and generation ~= '0'
    and (tonumber(endpoint[at.GENERATION]) or 0) > tonumber(generation)
  return newer and now_ms - (tonumber(endpoint[at.NOTED]) or 0) < tonumber(lag)
end

-- Notes a target that is not outdated, with its generation.
local function note_target(key, endpoint, target, generation)
  if endpoint[at.TARGET] ~= target or (tonumber(endpoint[at.GENERATION]) or 0) < tonumber(generation) then
    call('HSET', key, field.TARGET, target, field.GENERATION, generation, field.NOTED, now_ms)
  end
end
