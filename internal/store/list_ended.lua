local feed_key = unpack(KEYS)
local history, newest, oldest, kinds, limit = unpack(ARGV)
-- uses: clock, list_ended

-- Lists ended sessions of an account, the newest first. lib/list_ended describes key and arguments.
-- Returns {the last entry examined, or '', since when everything is listed, the id of the entry and the event of each}.

local last, since, rows = list_ended(feed_key, history, newest, oldest, kinds, limit, const.MAX_CHUNKS)
return {last, since, rows}
