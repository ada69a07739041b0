local holders_key = unpack(KEYS)
local holder, heartbeats = unpack(ARGV)

-- Removes a holder that has made no heartbeat since it had made so many. The reply says whether it did: of several callers only one removes it.

if call('HGET', holders_key, holder) ~= heartbeats then
  return {'OK', 0}
end
call('HDEL', holders_key, holder)
return {'OK', 1}
