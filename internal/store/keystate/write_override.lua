local override_key = unpack(KEYS)
local issued, revision, list, revokes, keep, gone = unpack(ARGV)

-- Writes an override. Needs no clock.
-- issued and revision are its order, and list is what it accepts, see lib/admission; revokes is 'yes' if it accepts nothing; keep
-- is in ms. gone is '' or the order of the override that was there when the published object was seen to be gone: a revocation holds
-- for that one too.
-- Returns 'OK'; 'NEWER' if a newer one is there already, and then writes nothing; 'CORRUPT' if the stored one cannot be read.

local stored = redis.call('GET', override_key)
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
  elseif ahead == 0 and revokes ~= 'yes' then
    -- Of the same order only a revocation counts: a replica that learns of a rotation late must not revive a key that has been
    -- deleted since.
    return 'OK'
  end
end
if revokes == 'yes' then
  -- A full Redis refuses a SET as the first write, and a revocation must not wait until it is drained.
  redis.call('PEXPIRE', override_key, keep)
end
redis.call('SET', override_key, issued .. ' ' .. revision .. ' ' .. list, 'PX', keep)
return 'OK'
