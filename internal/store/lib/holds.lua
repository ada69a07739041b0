-- Expects clock. Defines read_hold(), which takes field h of a session and a payment, '<rail> <reference>', and returns who holds the session as
-- seen by that payment, 'nobody', 'self' or 'other', until when in ms, and since when if the payment was the last to hold it, maybe no longer.

local function read_hold(hold, payment)
  local ends, since, holder = string.match(hold, '^(%d+) (%d+) (.+)$')
  ends, since = tonumber(ends), holder == payment and tonumber(since)
  if not ends or ends <= now_ms then
    return 'nobody', 0, since
  end
  return holder == payment and 'self' or 'other', ends, since
end
