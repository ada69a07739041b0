local override_key = unpack(KEYS)
local known, margin, keep = unpack(ARGV)
-- uses: clock

-- Writes that no digest of an ended key is accepted, with an order above all that was ever published of it: above the time, and above
-- known, what the writer knows, by the margin, which is the most that the clocks behind both differ; and above what is stored. Times
-- are in ms.
-- Returns 'OK'.

local issued = math.max(now_ms, known) + margin
local stored = string.match(call('GET', override_key) or '', '^(%d+) ')
if stored then
  issued = math.max(issued, stored + 1)
end
local order = format('%d', issued)
-- A full Redis refuses a SET as the first write, and a revocation must not wait until it is drained.
call('PEXPIRE', override_key, keep)
call('SET', override_key, order .. ' ' .. order .. ' -', 'PX', keep)
return 'OK'
