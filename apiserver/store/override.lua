-- Writes an override, unless a newer one is there already. Runs without the prelude.
-- KEYS[1] is the override; ARGV[1] its revision, ARGV[2] its text, ARGV[3] '1' if it revokes the key,
-- ARGV[4] how long to keep it in ms.

local stored = redis.call('GET', KEYS[1])
if stored then
  local revision = tonumber(string.match(stored, '^(%d+) '))
  if not revision then
    return {'CORRUPT'}
  end
  local age = revision - tonumber(ARGV[1])
  -- Of the same revision only a revocation counts: a replica that is late with the news of a rotation must
  -- not revive a key that has been deleted since.
  if age > 0 or (age == 0 and ARGV[3] ~= '1') then
    return {'OK'}
  end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[4])
return {'OK'}
