-- Takes events that are due.
-- KEYS[1] is the bucket's due events; the keys of its events begin with KEYS[2], those of its endpoints with KEYS[3].
-- ARGV[1] how long to take them for in ms, ARGV[2] how many at most, ARGV[3] the token of the lease.

-- include: prelude
-- include: endpoint

local leased, expired = {}, 0
for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'LIMIT', 0, ARGV[2])) do
  local key = KEYS[2] .. id
  local fields = redis.pcall('HGETALL', key)
  if fields.err or not fields[1] then
    call('ZREM', KEYS[1], id) -- its time is over, or it is none; it must not stand in the way of the others
    expired = expired + 1
  else
    call('ZADD', KEYS[1], now_ms + ARGV[1], id)
    call('HSET', key, 'lease', ARGV[3])
    local merchant, attempts
    for i = 1, #fields, 2 do
      if fields[i] == 'm' then
        merchant = fields[i + 1]
      elseif fields[i] == 'attempts' then
        attempts = fields[i + 1]
      end
    end
    local endpoint = merchant and read_endpoint(KEYS[3] .. merchant) or {}
    leased[#leased + 1] = {id, fields, attempts or 0, endpoint}
  end
end
return {'OK', now_ms, leased, expired}
