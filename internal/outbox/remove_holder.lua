local holders_key = unpack(KEYS)
local holder, heartbeats = unpack(ARGV)
-- uses: clock, full

-- Marks a holder as removed if its count of heartbeats is still the given one. The reply says whether it did: of several callers only one marks
-- it. A mark stays until the leases are free, so that another dispatcher frees them if this one dies.

if call('HGET', holders_key, holder) ~= heartbeats then
  return {'OK', 0}
end
write_when_full('HDEL', holders_key)
call('HSET', holders_key, holder, 'removed')
return {'OK', 1}
