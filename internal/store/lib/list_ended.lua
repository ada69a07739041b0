-- Defines list_ended(). Uses clock.

-- Lists ends of sessions in the feed of an account, the newest first. history is how much of the feed is kept, '<ms> <entries>';
-- newest and oldest are the newest id and the oldest time in ms of the entries to examine; kinds are the events to list, each
-- between spaces, and limit is how many. It examines at most most_chunks times const.SCANNED_AT_ONCE entries.
-- Returns the id of the last entry that it has examined, or '' if there are no more; since when everything is listed, in ms; for
-- each event the id of its entry and the event; and how many chunks it has read.
local function list_ended(feed_key, history, newest, oldest, kinds, limit, most_chunks)
  local age, most = string.match(history, '^(%d+) (%d+)$')
  local since = math.max(oldest, now_ms - age)
  local first_id, last_id, most_rows = format('%d', since), newest, 2 * limit
  if call('XLEN', feed_key) >= tonumber(most) then -- others of the oldest millisecond may be dropped
    local first = call('XRANGE', feed_key, '-', '+', 'COUNT', 1)[1]
    since = math.max(since, string.match(first[1], '^%d+') + 1)
  end
  local rows, chunks, last = {}, 0, ''
  while chunks < math.min(most_chunks, const.MAX_CHUNKS) and #rows < most_rows do
    -- XREVRANGE from an id below the oldest entry looks at all entries of the feed, so it is not asked for what has none.
    local entries = call('XRANGE', feed_key, first_id, last_id, 'COUNT', 1)
    if entries[1] then
      entries = call('XREVRANGE', feed_key, last_id, first_id, 'COUNT', const.SCANNED_AT_ONCE)
    end
    chunks = chunks + 1
    for _, entry in ipairs(entries) do
      last = entry[1]
      local event = entry[2][2]
      if string.find(kinds, ' ' .. (string.match(event, '^%d+\t([%a_.]+)') or '?') .. ' ', 1, true) then
        rows[#rows + 1] = last
        rows[#rows + 1] = event
        if #rows >= most_rows then
          break
        end
      end
    end
    if #entries < const.SCANNED_AT_ONCE and #rows < most_rows then
      last = ''
      break
    end
    last_id = '(' .. last
  end
  return last, format('%d', since), rows, chunks
end
