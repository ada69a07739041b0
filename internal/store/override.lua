--- write_override
-- Writes an override, and answers 'OK'; if a newer one is there already it answers 'NEWER' and writes nothing. Needs no clock.
-- KEYS[1] is the override; ARGV[1] and ARGV[2] its order, see admission.lua; ARGV[3] its list; ARGV[4] '1' if it revokes the
-- key; ARGV[5] how long to keep it in ms; ARGV[6] for a revocation that holds for newer ones as well, unless their revision is
-- later: the time of the revocation in ms; else empty.

local issued, revision = ARGV[1], ARGV[2]
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
    if ARGV[6] == '' or stored_revision - ARGV[6] > 0 then
      return 'NEWER'
    end
    issued, revision = stored_issued, stored_revision
  elseif ahead == 0 and ARGV[4] ~= '1' then
    -- Of the same order only a revocation counts: a replica that is late with the news of a rotation must not revive a key
    -- that has been deleted since.
    return 'OK'
  end
end
redis.call('SET', KEYS[1], issued .. ' ' .. revision .. ' ' .. ARGV[3], 'PX', ARGV[5])
return 'OK'
