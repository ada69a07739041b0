-- Lists ended sessions of an account, the newest first.
-- KEYS[1] is the feed.
local history, newest, oldest, kinds, limit = unpack(ARGV)

return {list_ended(KEYS[1], history, newest, oldest, kinds, tonumber(limit))}
