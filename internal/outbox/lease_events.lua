local queue_key, due_key = unpack(KEYS)
local lease_ms, limit, token, endpoint_prefix, event_prefix, each = unpack(ARGV, 1, 6)
-- uses: clock, full, queue

-- Leases events that are due, a share for each account whose turn it is. It reads the endpoints of live accounts only: test events
-- are sent whatever the health of theirs. Only this script knows the events, so their keys are not declared; it only reads them.
-- One that cannot be read is leased like the others: the caller looks again with its key declared (forget_event).
-- token ends the entries of this lease in the queue, each is how many events of an account are leased at most. Behind the named
-- arguments are accounts and how many events of each at most, in turn; 0: it is paused. A paused account keeps its place, because
-- another dispatcher may try its events.
-- Returns {'OK', the time in ms, 1 if more events may be due, {account, fields of its endpoint} for each live account,
-- {leased event as the queue has it, account, id, all fields of the event} for each event}.

limit = tonumber(limit)
local events, room, paused = open_queue(queue_key, due_key), {}, 0
for i = 7, #ARGV, 2 do
  room[ARGV[i]] = tonumber(ARGV[i + 1])
  if room[ARGV[i]] == 0 then
    paused = paused + 1
  end
end

local accounts = {}
for _, account in ipairs(call('ZRANGEBYSCORE', due_key, '-inf', now_us / 1000, 'LIMIT', 0, limit + paused)) do
  if room[account] ~= 0 and #accounts < limit then
    accounts[#accounts + 1] = account
  end
end

local left, more = limit, #accounts == limit
local rows, endpoints = {}, {}
for i, account in ipairs(accounts) do
  local share = math.max(1, math.min(math.floor(left / (#accounts - i + 1)), room[account] or each))
  local waiting = call('ZRANGEBYLEX', queue_key, '[' .. account .. ':', '(' .. account .. format(':%013d', now_ms + 1), 'LIMIT', 0, share)
  left, more = left - #waiting, more or #waiting == share
  if #waiting > 0 and not events.is_test(account) then
    local endpoint = redis.pcall('HMGET', endpoint_prefix .. account, unpack(const.ENDPOINT_FIELDS))
    endpoints[#endpoints + 1] = {account, endpoint.err and {} or endpoint}
  end
  for _, member in ipairs(waiting) do
    local id = string.match(member, '^[^:]*:%d+:([^:]+)') or ''
    local fields = redis.pcall('HGETALL', event_prefix .. id)
    rows[#rows + 1] = {member, account, id, fields.err and {} or fields}
  end
end

if #accounts > 0 then
  write_when_full('ZREM', queue_key)
end
local until_time = format(':%013d:', now_ms + lease_ms)
for _, row in ipairs(rows) do
  local leased = row[2] .. until_time .. row[3] .. ':' .. token
  call('ZADD', queue_key, 0, leased)
  call('ZREM', queue_key, row[1])
  row[1] = leased
end
for _, account in ipairs(accounts) do
  events.place(account, events.first(account), true)
end
return {'OK', now_ms, more and 1 or 0, endpoints, rows}
