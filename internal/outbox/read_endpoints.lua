local watched_key, queue_key = unpack(KEYS)
local endpoint_prefix, account_dead_prefix = unpack(ARGV, 1, 2)
-- uses: clock, endpoint

-- Reads the health of endpoints of a bucket, and how many events and dead letters each merchant has. It only reads, also keys that
-- are not declared.
-- watched_key lists the endpoints with something to report. Behind the named arguments are merchants; none: those watched.
-- Returns {'OK', the time in ms, {merchant, events in the queue, dead letters, fields of its endpoint} for each}.

local merchants = {unpack(ARGV, 3)}
if #merchants == 0 then
  merchants = call('ZRANGE', watched_key, 0, -1)
end
local rows = {}
for i, merchant in ipairs(merchants) do
  local pending = call('ZLEXCOUNT', queue_key, '[' .. merchant .. ':', '(' .. merchant .. ';')
  local dead = call('ZCOUNT', account_dead_prefix .. merchant, now_ms - const.EVENT_RETENTION_MS, '+inf')
  rows[i] = {merchant, pending, dead, read_endpoint(endpoint_prefix .. merchant)}
end
return {'OK', now_ms, rows}
