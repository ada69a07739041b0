local holders_key = unpack(KEYS)
local holder = unpack(ARGV)
-- uses: clock

-- Forgets a removed holder, whose leases are free. holders_key is a hash of the holders of leases, see heartbeat.
-- Returns {'OK'}.

if call('HGET', holders_key, holder) == 'removed' then
  call('HDEL', holders_key, holder)
end
return {'OK'}
