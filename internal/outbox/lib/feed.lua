-- Expects clock and queue. Defines append_to_feed().

-- Appends an event to the feed of its account, and makes the change that it reports: both or none. Takes the key of the feed, its history as
-- '<ms> <entries>', the event as it is stored, the session it is about or '-', the account, and a function that makes the change. The event
-- comes first: a server that refuses it has changed nothing. Those who wait for the feed or for the session are notified.
local function append_to_feed(feed_key, history, event, session_id, account, change)
  local age = string.match(history, '^%d+')
  local oldest = format('%d', now_ms - age)
  local entry = call('XADD', feed_key, 'MINID', '~', oldest, '*', 'e', event)
  redis.pcall('PEXPIRE', feed_key, age)
  if not pcall(change) then
    call('XDEL', feed_key, entry)
    change() -- it fails as before, and says why
    call('XADD', feed_key, 'MINID', '~', oldest, '*', 'e', event)
  end
  if micros % 16 == 0 then -- often enough for a bound
    local most = string.match(history, '%d+$')
    if events.is_test(account) then
      most = math.min(most, TEST_ENTRIES)
    end
    redis.pcall('XTRIM', feed_key, 'MAXLEN', '~', most)
  end
  events.publish(session_id, account)
end
