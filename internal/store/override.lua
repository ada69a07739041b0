--- write_override
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

--- end_override
local known, margin, lifetime = unpack(ARGV)
-- Writes that no digest of an ended key is accepted, with an order above all that was ever published of it: above the time, and above known,
-- what the writer knows, by the margin, which is the most that the clocks behind both differ; and above what is stored.
-- KEYS[1] is the override; lifetime is how long to keep it in ms, as are the others.

local issued = math.max(now_ms, known) + margin
local stored = string.match(call('GET', KEYS[1]) or '', '^(%d+) ')
if stored then
  issued = math.max(issued, stored + 1)
end
local order = format('%d', issued)
call('SET', KEYS[1], order .. ' ' .. order .. ' -', 'PX', lifetime)
return 'OK'

--- read_overrides
-- Returns what is stored of each of KEYS, and then the time in ms.

local reply = call('MGET', unpack(KEYS))
reply[#KEYS + 1] = format('%d', now_ms)
return reply
