local holders_key = unpack(KEYS)
local holder, new, keep_ms = unpack(ARGV)
-- uses: clock, full

-- Counts a heartbeat of a holder of leases.
-- holders_key is a hash: for each holder its number of heartbeats, or 'removed' until its leases are free. It is kept for keep_ms
-- after the last heartbeat of any. new is 'yes' before the first heartbeat.
-- Returns {'STALE'}: the holder was removed, and its leases become free; or {'OK', all of the hash}.

local heartbeats = call('HGET', holders_key, holder)
if heartbeats == 'removed' or new ~= 'yes' and not heartbeats then
  return {'STALE'}
end
write_when_full('HDEL', holders_key)
call('HINCRBY', holders_key, holder, 1)
call('PEXPIRE', holders_key, keep_ms)
return {'OK', call('HGETALL', holders_key)}
