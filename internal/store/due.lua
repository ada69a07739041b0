-- Whether a session's time is over. Uses fields, of which the first two are its status and expiresAt. Leaves due.

local expires = not fields[1] and tonumber(fields[2])
local due = expires and now_ms >= expires -- garbage may be neither before nor after
