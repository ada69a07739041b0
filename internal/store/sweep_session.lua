-- Expires a session that is in the index by itself.
-- KEYS[4] is the session, KEYS[5] the event of its end, KEYS[6] its feed; ARGV[1] is its name in KEYS[1].

local outcome, expires = examine(ARGV[1], KEYS[4], KEYS[5], KEYS[6])
if outcome == 'waits' then
  call('ZADD', KEYS[1], expires, ARGV[1])
elseif outcome ~= 'corrupt' then
  call('ZREM', KEYS[1], ARGV[1])
end
return {'OK', expired, corrupt, examined, oldest}
