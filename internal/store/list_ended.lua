local feed_key = unpack(KEYS)
local history, newest, oldest, kinds, limit = unpack(ARGV)
-- uses: clock, list_ended

-- Lists ended sessions of an account, the newest first.

local last, since, rows = list_ended(MAX_CHUNKS)
return {last, since, rows}
