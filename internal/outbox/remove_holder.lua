local holders_key = unpack(KEYS)
local holder, heartbeats = unpack(ARGV)
-- uses: clock, full

-- Marks a holder of leases as removed if its number of heartbeats is still the given one: of several callers only one marks it. The
-- mark stays until the leases are free, so that another dispatcher frees them if this one dies. holders_key is a hash, see
-- heartbeat.
-- Returns {'OK', 1 if this call has marked it}.

if call('HGET', holders_key, holder) ~= heartbeats then
  return {'OK', 0}
end
write_when_full('HDEL', holders_key)
call('HSET', holders_key, holder, 'removed')
return {'OK', 1}
