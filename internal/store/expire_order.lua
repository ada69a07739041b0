-- Expires sessions of an order that are due, and then lists the newest ones.
-- KEYS[1] is the order, KEYS[2] the bucket's queue, KEYS[3] its due merchants, KEYS[4] the feed, and from KEYS[5] on each session that may be due
-- and the event of its end.
local session_keys, history = unpack(ARGV)

local s = sessions(KEYS[2], KEYS[3], history)
for i = 5, #KEYS, 2 do
  s.read(KEYS[i], KEYS[i + 1], KEYS[4])
end
return {format('%d', now_ms), list_order(KEYS[1], session_keys)}
