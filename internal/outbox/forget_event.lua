-- Takes a leased event out of the queue that is none: its time is over, or its key holds something else. The reply says whether it did.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event; ARGV[1] the leased event as the queue has it.

local lost = call('TYPE', KEYS[3]).ok ~= 'hash' and events.release(ARGV[1])
return {'OK', lost and 1 or 0}
