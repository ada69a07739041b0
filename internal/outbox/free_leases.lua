local queue_key, due_key = unpack(KEYS)
local holder, after, limit = unpack(ARGV)
-- uses: clock, full, queue

-- Makes the events due at once that a removed holder has leased. It looks at a limited number of entries of the queue, behind the
-- entry `after`.
-- Returns {'OK', the last entry that it looked at, '' at the end of the queue, how many events it made due}.

local events, freed = open_queue(queue_key, due_key), 0
local entries = call('ZRANGEBYLEX', queue_key, after, '+', 'LIMIT', 0, limit)
write_when_full('ZREM', queue_key)
for _, entry in ipairs(entries) do
  if string.match(entry, '^[^:]*:%d+:[^:]+:([^:]*):') == holder then
    events.put_back(entry, now_ms)
    freed = freed + 1
  end
end
return {'OK', #entries == tonumber(limit) and entries[#entries] or '', freed}
