local queue_key, due_key = unpack(KEYS)
local holder, after, limit = unpack(ARGV)
-- uses: clock, full, queue

-- Makes the events due at once that a removed holder has leased. Looks at a limited number of entries of the queue behind one of them, and returns
-- the last of these, '' at the end of the queue, and how many events it made due.

local entries, freed = call('ZRANGEBYLEX', queue_key, after, '+', 'LIMIT', 0, limit), 0
write_when_full('ZREM', queue_key)
for _, entry in ipairs(entries) do
  if string.match(entry, '^[^:]*:%d+:[^:]+:([^:]*):') == holder then
    events.put_back(entry, now_ms)
    freed = freed + 1
  end
end
return {'OK', #entries == tonumber(limit) and entries[#entries] or '', freed}
