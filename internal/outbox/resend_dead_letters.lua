-- Makes dead letters due at once, as if they had never been tried, but for those whose endpoint is disabled.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] its dead letters, from KEYS[4] on events.
-- ARGV[1] is what the keys of the bucket's endpoints begin with, which are only read; from ARGV[2] on the ids of these events.

local sent, refused = 0, {}
for i = 4, #KEYS do
  local key, id = KEYS[i], ARGV[i - 2]
  if call('ZSCORE', KEYS[3], id) and call('EXISTS', key) == 1 then
    local merchant = call('HGET', key, 'm') or ''
    local endpoint = read_endpoint(ARGV[1] .. merchant)
    if endpoint[DISABLED] then
      refused[#refused + 1] = {merchant, call('HGET', key, 'merchant') or '', endpoint}
    else
      call('ZREM', KEYS[3], id)
      call('HDEL', key, 'attempts', 'why', 'answer', 'merchant')
      call('PEXPIRE', key, dead_keep_ms)
      events.add(merchant, now_ms, id)
      sent = sent + 1
    end
  end
end
return {'OK', sent, refused}
