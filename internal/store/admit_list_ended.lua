-- Lists ended sessions of a merchant, the newest first, for a request.
-- KEYS[3] is the feed.

if result then
  return result .. moment
end
local history, newest, oldest, kinds, limit = unpack(ARGV, 5)
return {'OK' .. moment, list_ended(KEYS[3], history, newest, oldest, kinds, tonumber(limit))}
