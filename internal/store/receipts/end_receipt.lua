local receipts_key, session_key = unpack(KEYS)
local session_id, leased_until = unpack(ARGV)
-- uses: clock

-- Ends a receipt that was sent or given up, and forgets the address: nothing else needs it. The address of a session that is still
-- pending stays: a settlement that failed half-way has listed it, and the one that succeeds needs it.
-- leased_until is when the lease of the receipt ends, in ms.
-- Returns {'STALE'}: the lease was lost; or {'OK'}.

if call('ZSCORE', receipts_key, session_id) ~= leased_until then
  return {'STALE'}
end
if type(redis.pcall('HGET', session_key, field.STATUS)) == 'string' then -- a key of another type has none
  redis.pcall('HDEL', session_key, field.EMAIL)
end
call('ZREM', receipts_key, session_id)
return {'OK'}
