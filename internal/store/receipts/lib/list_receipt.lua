-- Defines list_receipt(). Uses clock.

-- Lists the receipt of a session that was paid, which is due at once. keep is how long the session is kept, in ms: if receipts are
-- turned off, no entry outlives its session. A list of another type costs mails, never a payment.
local function list_receipt(receipts_key, session_id, keep)
  redis.pcall('ZADD', receipts_key, now_ms, session_id)
  redis.pcall('ZREMRANGEBYSCORE', receipts_key, '-inf', now_ms - keep)
  redis.pcall('PEXPIRE', receipts_key, keep)
end
