local issued, revision, list, revokes, lifetime, gone = unpack(ARGV)
-- Writes an override, and answers 'OK'; if a newer one is there already it answers 'NEWER' and writes nothing. Needs no clock.
-- KEYS[1] is the override; issued and revision are its order, see admission.lua; revokes is '1' if the list is empty; lifetime is how long
-- to keep it in ms. gone is '' or the order of the override that was there when the published object was seen to be gone: a revocation
-- holds for that one too.

local stored = redis.call('GET', KEYS[1])
if stored then
  local stored_issued, stored_revision = string.match(stored, '^(%d+) (%d+) ')
  if not stored_issued then
    return 'CORRUPT'
  end
  local ahead = stored_issued - issued
  if ahead == 0 then
    ahead = stored_revision - revision
  end
  if ahead > 0 then
    if gone ~= stored_issued .. ' ' .. stored_revision then
      return 'NEWER'
    end
    issued, revision = stored_issued, stored_revision
  elseif ahead == 0 and revokes ~= '1' then
    -- Of the same order only a revocation counts: a replica that is late with the news of a rotation must not revive a key
    -- that has been deleted since.
    return 'OK'
  end
end
redis.call('SET', KEYS[1], issued .. ' ' .. revision .. ' ' .. list, 'PX', lifetime)
return 'OK'
