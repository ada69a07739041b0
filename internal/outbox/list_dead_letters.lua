-- Reads a page of dead letters, the newest first. The events are only read, for which they are is known here alone.
-- KEYS[1] is the dead letters of a bucket or of a merchant. ARGV[1] how many to skip, ARGV[2] how many at most, ARGV[3] what the keys of the bucket's
-- events begin with.

local skip, limit, event_prefix = unpack(ARGV)
forget_dead_letters(KEYS[1])
local letters = {}
local page = call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '(' .. format('%.0f', now_ms - dead_keep_ms), 'WITHSCORES', 'LIMIT', skip, limit)
for i = 1, #page, 2 do
  local key = event_prefix .. page[i]
  local fields = redis.pcall('HGETALL', key)
  if not fields.err then
    local state = call('HMGET', key, 'why', 'attempts', 'answer', 'merchant')
    letters[#letters + 1] = {page[i], page[i + 1], state[1], state[2] or 0, state[3], state[4], fields}
  end
end
return {'OK', #page / 2, letters}
