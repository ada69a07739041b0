-- Defines forget_dead_letters() and dead_letter(). Uses clock. Dead letters are kept as long as their events.

-- Forgets dead letters whose time is over, the oldest first. Not all of a million at once, which would block Redis.
local function forget_dead_letters(key)
  local old = call('ZRANGEBYSCORE', key, '-inf', now_ms - const.EVENT_RETENTION_MS, 'LIMIT', 0, 100)
  if #old > 0 then
    call('ZREM', key, unpack(old))
  end
end

-- Makes an event a dead letter of its bucket and of its account, and forgets some whose time is over. events is the bucket's
-- queue, dead_key and account_dead_key list the dead letters of the bucket and of the account, and queued is the event as the
-- queue has it. Returns the oldest dead letters of an account that has more than const.MAX_DEAD_LETTERS: only this script knows
-- their events, so the caller drops them (drop_dead_letters).
local function dead_letter(events, dead_key, account_dead_key, event_key, queued, reason, answer, merchant_name)
  call('HSET', event_key, field.WHY, reason, field.ANSWER, answer, field.MERCHANT_NAME, merchant_name)
  call('PEXPIRE', event_key, const.EVENT_RETENTION_MS)
  for _, key in ipairs({dead_key, account_dead_key}) do
    call('ZADD', key, now_ms, string.match(event_key, ':event:(.*)'))
    call('PEXPIRE', key, const.EVENT_RETENTION_MS)
    forget_dead_letters(key)
  end
  events.release(queued)
  local excess = math.min(call('ZCARD', account_dead_key) - const.MAX_DEAD_LETTERS, 100)
  return excess > 0 and call('ZRANGE', account_dead_key, 0, excess - 1) or {}
end
