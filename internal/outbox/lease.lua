-- Takes events that are due, a share for each merchant whose turn it is.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants.
-- ARGV[1] how long to take them for in ms, ARGV[2] how many at most, ARGV[3] the token of the lease, ARGV[4] and ARGV[5] what the keys
-- of the bucket's endpoints and events begin with, ARGV[6] for how long in ms to put off the turn of a merchant without room, ARGV[7] how
-- many events of one merchant at most, from ARGV[8] on the merchants for which it is another number, and that number, in turn.
-- The events are only read, for which they are is known here alone. One that reads as none is leased like the others: whoever
-- leased it looks again with its key declared (forget).

local room = {}
for i = 8, #ARGV, 2 do
  room[ARGV[i]] = tonumber(ARGV[i + 1])
  if room[ARGV[i]] == 0 then
    call('ZADD', due_key, 'XX', 'GT', now_ms + ARGV[6], ARGV[i])
  end
end

local merchants = call('ZRANGEBYSCORE', due_key, '-inf', now_us / 1000, 'LIMIT', 0, ARGV[2])
local left, more = tonumber(ARGV[2]), #merchants == tonumber(ARGV[2])
local rows, endpoints = {}, {}
for i, merchant in ipairs(merchants) do
  local share = math.max(1, math.min(math.floor(left / (#merchants - i + 1)), room[merchant] or ARGV[7]))
  local waiting = call('ZRANGEBYLEX', queue_key, '[' .. merchant .. ':', '(' .. merchant .. format(':%013d', now_ms + 1), 'LIMIT', 0, share)
  left, more = left - #waiting, more or #waiting == share
  if #waiting > 0 then
    local state = redis.pcall('HMGET', ARGV[4] .. merchant, ENDPOINT_FIELDS)
    endpoints[#endpoints + 1] = {merchant, state.err and {} or state}
  end
  for _, member in ipairs(waiting) do
    local id = string.match(member, '^[^:]*:%d+:([^:]+)') or ''
    local fields = redis.pcall('HGETALL', ARGV[5] .. id)
    rows[#rows + 1] = {member, merchant, id, fields.err and {} or fields}
  end
end

local until_time = format(':%013d:', now_ms + ARGV[1])
for _, row in ipairs(rows) do
  local leased = row[2] .. until_time .. row[3] .. ':' .. ARGV[3]
  call('ZADD', queue_key, 0, leased)
  call('ZREM', queue_key, row[1])
  row[1] = leased
end
for _, merchant in ipairs(merchants) do
  events.place(merchant, events.first(merchant), true)
end
return {'OK', now_ms, more and 1 or 0, endpoints, rows}
