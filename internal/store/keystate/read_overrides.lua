-- uses: clock

-- Reads overrides. KEYS are theirs, all of one bucket.
-- Returns {the text of each, the time in ms}.

local reply = call('MGET', unpack(KEYS))
reply[#KEYS + 1] = format('%d', now_ms)
return reply
