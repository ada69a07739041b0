-- Defines list_owed() and unlist_owed(). Uses clock.
--
-- A refund that is owed stands in several lists: one of all rails for the metrics, the list of its rail, and, if a merchant has asked
-- for it, the list of that merchant's account. A member is '<session id> <payment>' for a payment to be refunded, and '<session id> <refund id>' for a
-- request. The lists are indexes: the session itself decides, and listing must not fail what it lists.

-- since is when the payment was refused or the refund asked for, and keep is how long it stays listed from then on, both in ms.
local function list_owed(lists, member, since, keep)
  for _, key in ipairs(lists) do
    redis.pcall('ZADD', key, 'NX', since, member)
    redis.pcall('ZREMRANGEBYSCORE', key, '-inf', now_ms - keep)
    redis.pcall('PEXPIRE', key, keep)
  end
end

local function unlist_owed(lists, member)
  for _, key in ipairs(lists) do
    redis.pcall('ZREM', key, member)
  end
end
