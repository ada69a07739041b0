local receipts_key = unpack(KEYS)
local session_id, leased_until, delay = unpack(ARGV)
-- uses: clock, full

-- Makes a leased receipt due after a delay in ms. leased_until is when its lease ends, in ms.
-- Returns {'STALE'}: the lease was lost; or {'OK'}.

if call('ZSCORE', receipts_key, session_id) ~= leased_until then
  return {'STALE'}
end
write_when_full('ZREM', receipts_key)
call('ZADD', receipts_key, now_ms + delay, session_id)
return {'OK'}
