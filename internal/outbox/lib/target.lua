-- Expects clock and endpoint. Defines target_outdated() and note_target().

-- Whether another dispatcher has noted another target of a higher generation of the Merchant. A caller knows all that was published until lag ms
-- ago; its target is the newer one, though of a lower generation, if the other one was noted before that: the Merchant was restored from a backup.
local function target_outdated(endpoint, target, generation, lag)
  local newer = endpoint[TARGET] and endpoint[TARGET] ~= target and generation ~= '0'
    and (tonumber(endpoint[GENERATION]) or 0) > tonumber(generation)
  return newer and now_ms - (tonumber(endpoint[NOTED]) or 0) < tonumber(lag)
end

-- Notes a target that is not outdated, with its generation.
local function note_target(key, endpoint, target, generation)
  if endpoint[TARGET] ~= target or (tonumber(endpoint[GENERATION]) or 0) < tonumber(generation) then
    call('HSET', key, 'target', target, 'generation', generation, 'noted', now_ms)
  end
end
