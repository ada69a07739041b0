local queue_key, due_key, dead_key, account_dead_key, endpoint_key, watched_key = unpack(KEYS, 1, 6)
local account = unpack(ARGV, 1, 1)
-- uses: clock, queue, endpoint

-- Makes dead letters of an account due at once, as if they had never been tried, unless its endpoint is disabled. Those of others
-- stay.
-- dead_key and account_dead_key are the dead letters of the bucket and of the account, watched_key lists the endpoints with
-- something to report. Behind the named keys are the events, behind the named argument their ids.
-- Returns {'OK', how many are due, {account, merchant name, fields of its endpoint} for each whose endpoint is disabled}.

local events, endpoint = open_queue(queue_key, due_key), read_endpoint(endpoint_key)
local event_keys, sent, disabled = {unpack(KEYS, 7)}, 0, {}
for i, id in ipairs({unpack(ARGV, 2)}) do
  local event_key = event_keys[i]
  if call('ZSCORE', dead_key, id) and call('ZSCORE', account_dead_key, id) and call('EXISTS', event_key) == 1 then
    if endpoint[at.DISABLED] then
      disabled[#disabled + 1] = {account, call('HGET', event_key, field.MERCHANT_NAME) or '', endpoint}
    else
      call('ZREM', dead_key, id)
      call('ZREM', account_dead_key, id)
      call('HDEL', event_key, field.ATTEMPTS, field.WHY, field.ANSWER, field.MERCHANT_NAME)
      call('PEXPIRE', event_key, const.EVENT_RETENTION_MS)
      events.add(account, now_ms, id)
      sent = sent + 1
    end
  end
end
if sent > 0 then
  events.publish('-', '-') -- the feed has them already
  if not events.is_test(account) then
    call('ZADD', watched_key, 'NX', now_ms, account) -- its dead letters are fewer
  end
end
return {'OK', sent, disabled}
