local holders_key = unpack(KEYS)
local holder, new, keep_ms = unpack(ARGV)
-- uses: clock, full

-- Counts a heartbeat of a holder of leases, and returns the heartbeats of all holders. STALE: the holder was removed, and its leases become free.
-- new is '1' before the first heartbeat. The holders are kept for keep_ms after the last heartbeat of any.

local heartbeats = call('HGET', holders_key, holder)
if heartbeats == 'removed' or new ~= '1' and not heartbeats then
  return {'STALE'}
end
write_when_full('HDEL', holders_key)
call('HINCRBY', holders_key, holder, 1)
call('PEXPIRE', holders_key, keep_ms)
return {'OK', call('HGETALL', holders_key)}
