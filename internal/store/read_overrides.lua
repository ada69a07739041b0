-- uses: clock

-- Returns what is stored of each override in KEYS, and then the time in ms.

local reply = call('MGET', unpack(KEYS))
reply[#KEYS + 1] = format('%d', now_ms)
return reply
