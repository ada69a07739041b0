-- Drops dead letters of a merchant, and their events.
-- KEYS[1] is the bucket's dead letters, KEYS[2] the merchant's, from KEYS[3] on events; ARGV their ids.

local dropped = 0
for i, id in ipairs(ARGV) do
  if call('ZREM', KEYS[2], id) == 1 then -- else it was sent again meanwhile
    call('ZREM', KEYS[1], id)
    call('DEL', KEYS[i + 2])
    dropped = dropped + 1
  end
end
return {'OK', dropped}
