-- KEYS: the login. ARGV: idle in milliseconds. Returns the record and keeps it for that time; empty: there is none.
local found = call('HMGET', KEYS[1], 'record', 'ends')
if not found[1] then return '' end
local left = found[2] - now_ms
if left <= 0 then return '' end
call('PEXPIRE', KEYS[1], format('%.0f', math.min(left, ARGV[1])))
return found[1]
