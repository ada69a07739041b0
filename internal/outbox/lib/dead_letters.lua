-- Expects clock, queue and forget_dead_letters; dead_key and account_dead_key, the dead letters of the bucket and of the account. Defines
-- dead_letter().

-- Makes an event a dead letter of its bucket and of its account, and forgets some whose time is over. Takes the key of the event, and the
-- event as the queue has it. Returns the oldest ones of an account that has more than MAX_DEAD_LETTERS: only this script knows their events, so
-- the caller drops them (drop_dead_letters).
local function dead_letter(event_key, queued, reason, answer, merchant_name)
  call('HSET', event_key, 'why', reason, 'answer', answer, 'merchant', merchant_name)
  call('PEXPIRE', event_key, EVENT_RETENTION_MS)
  for _, key in ipairs({dead_key, account_dead_key}) do
    call('ZADD', key, now_ms, string.match(event_key, ':event:(.*)'))
    call('PEXPIRE', key, EVENT_RETENTION_MS)
    forget_dead_letters(key)
  end
  events.release(queued)
  local excess = math.min(call('ZCARD', account_dead_key) - MAX_DEAD_LETTERS, 100)
  return excess > 0 and call('ZRANGE', account_dead_key, 0, excess - 1) or {}
end
