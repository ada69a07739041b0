-- Makes dead letters due at once, as if they had never been tried.
-- KEYS[1] is the bucket's due events, KEYS[2] its dead letters; the keys of its events begin with KEYS[3].
-- ARGV are the ids.

-- include: prelude
-- include: dead

local sent = 0
for _, id in ipairs(ARGV) do
  local key = KEYS[3] .. id
  if call('ZREM', KEYS[2], id) == 1 and call('EXISTS', key) == 1 then
    call('HDEL', key, 'attempts', 'lease', 'why')
    call('PEXPIRE', key, dead_keep_ms)
    call('ZADD', KEYS[1], now_ms, id)
    sent = sent + 1
  end
end
return {'OK', sent}
