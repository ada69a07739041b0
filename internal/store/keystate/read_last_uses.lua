local read_key = unpack(KEYS)
local known = unpack(ARGV)
-- uses: clock

-- Reads when API keys were last used.
-- read_key holds '<since> <when this was read last>', in ms: since when no use was lost. It is lost with the uses: if it is missing,
-- older than the caller knows or ahead of the clock, it begins anew. Behind it are the keys of the last uses. known is when the
-- caller knows that they were read before, in ms.
-- Returns {since, the time in ms, the last uses of each key}.

local stored = call('MGET', unpack(KEYS))
local now = format('%d', now_ms)
local since, read = string.match(stored[1] or '', '^(%d+) (%d+)')
if not since or read - known < 0 or since - now_ms > 0 then
  since, read = now, now
elseif now_ms - read > 0 then
  read = now
end
call('SET', read_key, since .. ' ' .. read)
stored[1] = now
table.insert(stored, 1, since)
return stored
