local receipts_key = unpack(KEYS)
local lease_ms, limit = unpack(ARGV)
-- uses: clock, full

-- Leases receipts that are due. When its lease ends, a receipt is due again, unless it was ended or deferred.
-- receipts_key lists the sessions by when their receipts are due, in ms.
-- Returns {'OK', when the lease ends in ms, the ids of the sessions}.

local leased_until, due = now_ms + lease_ms, call('ZRANGEBYSCORE', receipts_key, '-inf', now_ms, 'LIMIT', 0, limit)
write_when_full('ZREM', receipts_key)
for _, session_id in ipairs(due) do
  call('ZADD', receipts_key, leased_until, session_id)
end
return {'OK', leased_until, due}
