-- Defines list_order(). Uses clock.

-- Lists the newest sessions of an order. session_prefix is what the keys of the account's sessions begin with: they are only read.
-- Returns 1 if there are more than it lists, and for each session the random part of its id and its fields.
local function list_order(order_key, session_prefix)
  local entries = call('MGET', order_key)[1] or '' -- MGET, as create does
  local most, rows = const.MAX_ORDER_SESSIONS * const.RANDOM_LENGTH, {}
  for first = 1, math.min(#entries, most), const.RANDOM_LENGTH do
    local entry = string.sub(entries, first, first + const.RANDOM_LENGTH - 1)
    rows[#rows + 1] = entry
    rows[#rows + 1] = call('HMGET', session_prefix .. entry, unpack(const.SESSION_FIELDS))
  end
  return #entries > most and 1 or 0, rows
end
