local dead_key = unpack(KEYS)
local skip, limit, event_prefix = unpack(ARGV)
-- uses: clock, forget_dead_letters

-- Reads a page of dead letters of a bucket or of an account, the newest first. Only this script knows the events, so their keys are not declared;
-- it only reads them.

forget_dead_letters(dead_key)
local letters = {}
local page = call('ZREVRANGEBYSCORE', dead_key, '+inf', '(' .. format('%.0f', now_ms - EVENT_RETENTION_MS), 'WITHSCORES', 'LIMIT', skip, limit)
for i = 1, #page, 2 do
  local event_key = event_prefix .. page[i]
  local fields = redis.pcall('HGETALL', event_key)
  if not fields.err then
    local why, attempts, answer, merchant_name = unpack(call('HMGET', event_key, 'why', 'attempts', 'answer', 'merchant'))
    letters[#letters + 1] = {page[i], page[i + 1], why, attempts or 0, answer, merchant_name, fields}
  end
end
return {'OK', #page / 2, letters}
