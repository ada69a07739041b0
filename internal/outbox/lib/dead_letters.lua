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
