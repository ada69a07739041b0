local dead_key = unpack(KEYS)
local skip, limit, event_prefix, only = unpack(ARGV)
-- uses: clock, dead_letters

-- Reads a page of dead letters of a bucket or of an account, the newest first, or one of them. Only this script knows the events, so their keys are
-- not declared; it only reads them.
-- dead_key lists the dead letters, event_prefix is what the keys of events begin with. only is the id of the one to read; empty:
-- a page.
-- Returns {'OK', how many there are on the page, {id, when it became one in ms, why, attempts, answer, merchant name, all fields of
-- the event} for each that can be read}.

forget_dead_letters(dead_key)
local letters = {}
local newer_than = '(' .. format('%.0f', now_ms - const.EVENT_RETENTION_MS)
local page
if only == '' then
  page = call('ZREVRANGEBYSCORE', dead_key, '+inf', newer_than, 'WITHSCORES', 'LIMIT', skip, limit)
else
  local since = call('ZSCORE', dead_key, only)
  page = since and {only, since} or {}
end
for i = 1, #page, 2 do
  local event_key = event_prefix .. page[i]
  local fields = redis.pcall('HGETALL', event_key)
  if not fields.err then
    local why, attempts, answer, merchant_name = unpack(call('HMGET', event_key, field.WHY, field.ATTEMPTS, field.ANSWER, field.MERCHANT_NAME))
    letters[#letters + 1] = {page[i], page[i + 1], why, attempts or 0, answer, merchant_name, fields}
  end
end
return {'OK', #page / 2, letters}
