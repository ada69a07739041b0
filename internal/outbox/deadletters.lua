-- Expects clock and queue. Defines held(), dead_letter() and dead_keep_ms.

-- Dead letters are kept for 30 days, and so are their events.
local dead_keep_ms = 2592000000

-- Whether a lease is still held, and its event is there.
local function held(key, leased)
  return call('ZSCORE', queue_key, leased) and call('EXISTS', key) == 1
end

-- Makes a leased event a dead letter of its bucket and of its merchant, and forgets those whose time is over.
local function dead_letter(bucket_key, merchant_key, key, leased, reason, answer, merchant)
  events.release(leased)
  call('HSET', key, 'why', reason, 'answer', answer, 'merchant', merchant)
  call('PEXPIRE', key, dead_keep_ms)
  for _, dead_key in ipairs({bucket_key, merchant_key}) do
    call('ZADD', dead_key, now_ms, string.match(key, ':event:(.*)'))
    call('ZREMRANGEBYSCORE', dead_key, '-inf', now_ms - dead_keep_ms)
  end
  call('PEXPIRE', merchant_key, dead_keep_ms)
end
