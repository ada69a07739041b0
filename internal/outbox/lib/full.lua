-- Defines write_when_full(). Uses clock.

-- Has all writes of the script pass while Redis is full, for a script that takes something out of Redis or is needed for that. A
-- Redis at maxmemory refuses the first write of a script if that may need memory, and none after it. So the first write removes
-- an entry without a name, which there is not, from one of the script's keys: remove is ZREM or HDEL.
local function write_when_full(remove, key)
  call(remove, key, '')
end
