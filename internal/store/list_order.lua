-- Lists the newest sessions of an order, for a merchant.
-- KEYS[3] is the order, ARGV[5] what the keys of the account's sessions begin with.

if result then
  return result .. moment
end
return {'OK' .. moment, list_order(KEYS[3], ARGV[5])}
