-- Defines append_to_feed(). Uses clock.

-- Appends an event to the feed of its account, and makes the change that it reports: both or none. events is the bucket's queue,
-- history is how much of the feed is kept, '<ms> <entries>', event is the event as it is stored, session_id is the session that
-- it is about, or '-', and change is a function that makes the change. The event comes first: a server that refuses it has
-- changed nothing. Those who wait for the feed or for the session are notified.
local function append_to_feed(events, feed_key, history, event, session_id, account, change)
  local age, most = string.match(history, '^(%d+) (%d+)$')
  local function append()
    return call('XADD', feed_key, 'MINID', '~', format('%d', now_ms - age), '*', 'e', event)
  end
  local entry = append()
  redis.pcall('PEXPIRE', feed_key, age)
  if not pcall(change) then
    call('XDEL', feed_key, entry)
    change() -- it fails again and ends the script, with the code of its error, which pcall loses
    append()
  end
  if micros % 16 == 0 then -- often enough for a bound
    if events.is_test(account) then
      most = math.min(most, const.TEST_ENTRIES)
    end
    redis.pcall('XTRIM', feed_key, 'MAXLEN', '~', most)
  end
  events.publish(session_id, account)
end
