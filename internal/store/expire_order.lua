-- Expires sessions of an order that are due, and then lists the newest ones.
-- KEYS[1] is the order, KEYS[2] the bucket's queue, KEYS[3] its due merchants, and from KEYS[4] on each session that may be due and the event
-- of its end. ARGV[1] is what the keys of the account's sessions begin with.

local s = sessions(KEYS[2], KEYS[3])
for i = 4, #KEYS, 2 do
  s.read(KEYS[i], KEYS[i + 1])
end
return {format('%d', now_ms), list_order(KEYS[1], ARGV[1])}
