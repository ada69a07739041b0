local holders_key = unpack(KEYS)
local holder = unpack(ARGV)
-- uses: clock

-- Forgets a removed holder, whose leases are free.

if call('HGET', holders_key, holder) == 'removed' then
  call('HDEL', holders_key, holder)
end
return {'OK'}
