local receipts_key, session_key = unpack(KEYS)
local session_id, leased_until = unpack(ARGV)

-- Ends a receipt that was sent or given up, and forgets the address: nothing else needs it.

if call('ZSCORE', receipts_key, session_id) ~= leased_until then
  return {'STALE'}
end
redis.pcall('HDEL', session_key, 'u') -- a key of another type has none
call('ZREM', receipts_key, session_id)
return {'OK'}
