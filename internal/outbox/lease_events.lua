local queue_key, due_key = unpack(KEYS)
local lease_ms, limit, token, endpoint_prefix, event_prefix, each = unpack(ARGV, 1, 6)

-- Takes events that are due, a share for each merchant whose turn it is.
-- Behind the named arguments are merchants and how many events of each at most, in turn; 0: it is blocked. A blocked
-- merchant keeps its place, because another dispatcher may try its events.
-- Only this script knows the events, so their keys are not declared; it only reads them. One that cannot be read is leased like the others: the
-- caller looks again with its key declared (forget_event).

limit = tonumber(limit)
local room, blocked = {}, 0
for i = 7, #ARGV, 2 do
  room[ARGV[i]] = tonumber(ARGV[i + 1])
  if room[ARGV[i]] == 0 then
    blocked = blocked + 1
  end
end

local merchants = {}
for _, merchant in ipairs(call('ZRANGEBYSCORE', due_key, '-inf', now_us / 1000, 'LIMIT', 0, limit + blocked)) do
  if room[merchant] ~= 0 and #merchants < limit then
    merchants[#merchants + 1] = merchant
  end
end

local left, more = limit, #merchants == limit
local rows, endpoints = {}, {}
for i, merchant in ipairs(merchants) do
  local share = math.max(1, math.min(math.floor(left / (#merchants - i + 1)), room[merchant] or each))
  local waiting = call('ZRANGEBYLEX', queue_key, '[' .. merchant .. ':', '(' .. merchant .. format(':%013d', now_ms + 1), 'LIMIT', 0, share)
  left, more = left - #waiting, more or #waiting == share
  if #waiting > 0 then
    local state = redis.pcall('HMGET', endpoint_prefix .. merchant, ENDPOINT_FIELDS)
    endpoints[#endpoints + 1] = {merchant, state.err and {} or state}
  end
  for _, member in ipairs(waiting) do
    local id = string.match(member, '^[^:]*:%d+:([^:]+)') or ''
    local fields = redis.pcall('HGETALL', event_prefix .. id)
    rows[#rows + 1] = {member, merchant, id, fields.err and {} or fields}
  end
end

local until_time = format(':%013d:', now_ms + lease_ms)
for _, row in ipairs(rows) do
  local leased = row[2] .. until_time .. row[3] .. ':' .. token
  call('ZADD', queue_key, 0, leased)
  call('ZREM', queue_key, row[1])
  row[1] = leased
end
for _, merchant in ipairs(merchants) do
  events.place(merchant, events.first(merchant), true)
end
return {'OK', now_ms, more and 1 or 0, endpoints, rows}
