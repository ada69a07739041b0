-- Puts events off, without counting an attempt. Those whose lease was lost are left alone.
-- KEYS[1] is the bucket's due events; the keys of its events begin with KEYS[2].
-- ARGV: event id, token of the lease and time to the next look in ms, in turn.

-- include: prelude
-- include: dead

for i = 1, #ARGV, 3 do
  local key = KEYS[2] .. ARGV[i]
  if held(key, ARGV[i + 1]) then
    call('HDEL', key, 'lease')
    call('ZADD', KEYS[1], now_ms + ARGV[i + 2], ARGV[i])
  end
end
return {'OK'}
