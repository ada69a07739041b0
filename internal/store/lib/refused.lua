-- Defines the form of field l:<payment> of a session, a payment that was refused: '<decision> <cents> <when it was paid in ms, or 0>', and behind a
-- space its currency, if that is not the session's. A currency is empty if it is.

-- An amount, as in an event.
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
