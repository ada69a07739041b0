-- Makes dead letters of a merchant due at once, as if they had never been tried, unless its endpoint is disabled.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] its dead letters, KEYS[4] the merchant's dead letters, KEYS[5] its
-- endpoint, from KEYS[6] on events. ARGV[1] is the merchant id, from ARGV[2] on the ids of these events.

local endpoint = read_endpoint(KEYS[5])
local sent, refused = 0, {}
for i = 6, #KEYS do
  local key, id = KEYS[i], ARGV[i - 4]
  if call('ZSCORE', KEYS[3], id) and call('EXISTS', key) == 1 then
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
return {'OK', sent, refused}
