-- Defines read_hold(). Uses clock.

-- Takes the HOLD field of a session and a payment, '<rail> <reference>'. Returns who holds the session as seen by that payment,
-- 'nobody', 'self' or 'other', and until when in ms.
local function read_hold(hold, payment)
  local ends, holder = string.match(hold or '', '^(%d+) ([^\t]+)')
  ends = tonumber(ends)
  if not ends or ends <= now_ms then
    return 'nobody', 0
  end
  return holder == payment and 'self' or 'other', ends
end
