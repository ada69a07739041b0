-- Follows the prelude in every script of the dispatcher: whose an event is, and what becomes of dead ones.
-- Events are named by their ids, and their hashes found by what the keys of all events of the bucket begin
-- with: only Redis knows which are due. All of them have the hash tag of that beginning, hence its slot.

-- Dead letters are kept for 30 days, and so are the events they name.
local dead_keep_ms = 2592000000

-- Whether the lease is still the one that this token was made for.
local function held(key, token)
  return call('HGET', key, 'lease') == token
end

-- Makes an event a dead letter, and forgets those whose time is over.
local function bury(due, dead, key, id, reason)
  call('ZREM', due, id)
  call('HDEL', key, 'lease')
  call('HSET', key, 'why', reason)
  call('PEXPIRE', key, dead_keep_ms)
  call('ZADD', dead, now_ms, id)
  call('ZREMRANGEBYSCORE', dead, '-inf', now_ms - dead_keep_ms)
end
