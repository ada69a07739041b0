local last_use_key, rotation_key = unpack(KEYS)
local keep = unpack(ARGV)

-- Has what else is kept of an ended key end soon: its last uses, and which rotation was reported last. Nothing adds to them, because
-- the key is neither accepted nor rotated again. keep is in ms. Needs no clock.
-- Returns 'OK'.

redis.call('PEXPIRE', last_use_key, keep)
redis.call('PEXPIRE', rotation_key, keep)
return 'OK'
