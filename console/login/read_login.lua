local login_key = unpack(KEYS)
local idle = unpack(ARGV)
-- uses: clock

-- Reads a login, and keeps it for another idle time, in ms.
-- Returns its record, or '' if there is none.

local record, ends = unpack(call('HMGET', login_key, 'record', 'ends'))
if not record then return '' end
local left = ends - now_ms
if left <= 0 then return '' end
call('PEXPIRE', login_key, format('%.0f', math.min(left, idle)))
return record
