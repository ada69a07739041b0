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
