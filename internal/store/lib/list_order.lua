-- Expects call, order_key, and session_prefix, what the keys of the account's sessions begin with: they are only read. Defines list_order(), which
-- returns whether there are more than it lists, and for each session the random part of its id and its fields.

local function list_order()
  local entries = call('MGET', order_key)[1] or '' -- MGET, as create.lua
  local rows = {}
  for first = 1, math.min(#entries, MAX_ORDER_SESSIONS * RANDOM_LENGTH), RANDOM_LENGTH do
    local entry = string.sub(entries, first, first + RANDOM_LENGTH - 1)
    rows[#rows + 1] = entry
    rows[#rows + 1] = call('HMGET', session_prefix .. entry, SESSION_FIELDS)
  end
  return #entries > MAX_ORDER_SESSIONS * RANDOM_LENGTH and 1 or 0, rows
end
