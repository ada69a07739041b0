--- forget_dead_letters
-- Expects clock. Defines forget_dead_letters() and dead_keep_ms.

-- Dead letters are kept for 30 days, and so are their events.
local dead_keep_ms = 2592000000

-- Forgets dead letters whose time is over, the oldest first. Not all of a million at once, which would hold up Redis.
local function forget_dead_letters(key)
  local old = call('ZRANGEBYSCORE', key, '-inf', now_ms - dead_keep_ms, 'LIMIT', 0, 100)
  if #old > 0 then
    call('ZREM', key, unpack(old))
  end
end

--- deadletters
-- Expects clock, queue and forget_dead_letters. Defines held() and dead_letter(), which returns the oldest ones of a merchant that has
-- more than MAX_DEAD_LETTERS: their events are known here alone, so whoever runs this drops them (drop_dead_letters).

-- Whether a lease is still held, and its event is there.
local function held(key, leased)
  return call('ZSCORE', queue_key, leased) and call('EXISTS', key) == 1
end

-- Makes a leased event a dead letter of its bucket and of its merchant, and forgets some whose time is over.
local function dead_letter(bucket_key, merchant_key, key, leased, reason, answer, merchant)
  call('HSET', key, 'why', reason, 'answer', answer, 'merchant', merchant)
  call('PEXPIRE', key, dead_keep_ms)
  for _, dead_key in ipairs({bucket_key, merchant_key}) do
    call('ZADD', dead_key, now_ms, string.match(key, ':event:(.*)'))
    call('PEXPIRE', dead_key, dead_keep_ms)
    forget_dead_letters(dead_key)
  end
  events.release(leased)
  local excess = math.min(call('ZCARD', merchant_key) - MAX_DEAD_LETTERS, 100)
  return excess > 0 and call('ZRANGE', merchant_key, 0, excess - 1) or {}
end

--- drop_dead_letters
-- Drops dead letters of a merchant, and their events.
-- KEYS[1] is the bucket's dead letters, KEYS[2] the merchant's, from KEYS[3] on events; ARGV their ids.

local dropped = 0
for i, id in ipairs(ARGV) do
  if call('ZREM', KEYS[2], id) == 1 then -- else it was sent again meanwhile
    call('ZREM', KEYS[1], id)
    call('DEL', KEYS[i + 2])
    dropped = dropped + 1
  end
end
return {'OK', dropped}

--- list_dead_letters
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

--- resend_dead_letters
-- Makes dead letters of a merchant due at once, as if they had never been tried, unless its endpoint is disabled. Those of others stay.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] its dead letters, KEYS[4] the merchant's dead letters, KEYS[5] its
-- endpoint, KEYS[6] the bucket's watched endpoints, from KEYS[7] on events. ARGV[1] is the merchant id, from ARGV[2] on the ids of these events.

local endpoint = read_endpoint(KEYS[5])
local sent, refused = 0, {}
for i = 7, #KEYS do
  local key, id = KEYS[i], ARGV[i - 5]
  if call('ZSCORE', KEYS[3], id) and call('ZSCORE', KEYS[4], id) and call('EXISTS', key) == 1 then
    if endpoint[DISABLED] then
      refused[#refused + 1] = {ARGV[1], call('HGET', key, 'merchant') or '', endpoint}
    else
      call('ZREM', KEYS[3], id)
      call('ZREM', KEYS[4], id)
      call('HDEL', key, 'attempts', 'why', 'answer', 'merchant')
      call('PEXPIRE', key, dead_keep_ms)
      events.add(ARGV[1], now_ms, id)
      sent = sent + 1
    end
  end
end
if sent > 0 then
  call('ZADD', KEYS[6], 'NX', now_ms, ARGV[1]) -- its dead letters are fewer
end
return {'OK', sent, refused}
