-- Makes dead letters of a merchant due at once, as if they had never been tried, unless its endpoint is disabled. Those of others stay.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] its dead letters, KEYS[4] the merchant's dead letters, KEYS[5] its
-- endpoint, KEYS[6] the bucket's watched endpoints, from KEYS[7] on events. ARGV[1] is the merchant id, from ARGV[2] on the ids of these events.

local endpoint = read_endpoint(KEYS[5])
local sent, refused = 0, {}
for i = 7, #KEYS do
  local key, id = KEYS[i], ARGV[i - 5]
  if call('ZSCORE', KEYS[3], id) and call('ZSCORE', KEYS[4], id) and call('EXISTS', key) == 1 then
    if endpoint[DISABLED] then
      refused[#refused + 1] = {ARGV[1], call('HGET', key, 'merchant') or '', endpoint}
    else
      call('ZREM', KEYS[3], id)
      call('ZREM', KEYS[4], id)
      call('HDEL', key, 'attempts', 'why', 'answer', 'merchant')
      call('PEXPIRE', key, dead_keep_ms)
      events.add(ARGV[1], now_ms, id)
      sent = sent + 1
    end
  end
end
if sent > 0 then
  call('ZADD', KEYS[6], 'NX', now_ms, ARGV[1]) -- its dead letters are fewer
end
return {'OK', sent, refused}
