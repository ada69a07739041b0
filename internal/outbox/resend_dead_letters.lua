-- Makes dead letters due at once, as if they had never been tried.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] its dead letters, from KEYS[4] on events.
-- ARGV are the ids of these events.

local sent = 0
for i, id in ipairs(ARGV) do
  local key = KEYS[3 + i]
  if call('ZREM', KEYS[3], id) == 1 and call('EXISTS', key) == 1 then
    call('HDEL', key, 'attempts', 'why')
    call('PEXPIRE', key, dead_keep_ms)
    events.add(call('HGET', key, 'm') or '', now_ms, id)
    sent = sent + 1
  end
end
return {'OK', sent}
