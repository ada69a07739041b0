-- Defines write_amount(), write_refused() and read_refused(). Field REFUSED<payment> of a session is a payment that was refused:
-- '<decision> <cents> <when it was paid in ms, or 0>', and behind a space its currency, if that is not the session's. An empty
-- currency is the session's.

-- Returns an amount as an event has it.
local function write_amount(cents, currency)
  return currency == '' and cents or cents .. ' ' .. currency
end

local function write_refused(decision, cents, paid_at, currency)
  return decision .. ' ' .. cents .. ' ' .. write_amount(paid_at ~= '' and paid_at or '0', currency)
end

-- Returns cents and currency.
local function read_refused(text)
  return string.match(string.match(text, '^[^\t]*'), '^[%a_]+ (%d+) %d+ ?(%u*)$')
end
