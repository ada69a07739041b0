local queue_key, due_key = unpack(KEYS)
local most, most_of_test, limit = unpack(ARGV)
-- uses: clock, queue

-- Lists the events of accounts that have more than so many in the queue, those that are due first. limit is how many events at
-- most; the accounts have equal shares of them, so that none is left out because of another one's excess.
-- Returns {'OK', {account, its events beyond the bound as the queue has them, leased ones among them} for each account}.

local events, left, crowded, rows = open_queue(queue_key, due_key), tonumber(limit), {}, {}
for _, account in ipairs(call('ZRANGE', due_key, 0, -1)) do
  local bound, first, last = events.is_test(account) and most_of_test or most, '[' .. account .. ':', '(' .. account .. ';'
  local excess = call('ZLEXCOUNT', queue_key, first, last) - bound
  if excess > 0 then
    crowded[#crowded + 1] = {account, first, last, excess}
  end
end
for i, one in ipairs(crowded) do
  local account, first, last, excess = unpack(one)
  local share = math.min(excess, math.ceil(left / (#crowded - i + 1)))
  if share > 0 then
    rows[#rows + 1] = {account, call('ZRANGEBYLEX', queue_key, first, last, 'LIMIT', 0, share)}
    left = left - share
  end
end
return {'OK', rows}
