-- Reads a page of dead letters, the newest first.
-- KEYS[1] is the bucket's dead letters; the keys of its events begin with KEYS[2].
-- ARGV[1] how many to skip, ARGV[2] how many at most.

-- include: prelude
-- include: dead

call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms - dead_keep_ms)
local letters = {}
local page = call('ZREVRANGE', KEYS[1], ARGV[1], ARGV[1] + ARGV[2] - 1, 'WITHSCORES')
for i = 1, #page, 2 do
  local key = KEYS[2] .. page[i]
  local fields = redis.pcall('HGETALL', key)
  if not fields.err then
    local state = call('HMGET', key, 'why', 'attempts')
    letters[#letters + 1] = {page[i], page[i + 1], state[1], state[2] or 0, fields}
  end
end
return {'OK', #page / 2, letters}
