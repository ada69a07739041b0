-- Takes an event out of the queue that was leased and is none: its time is over, or its key holds something else. Says whether it did.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event. ARGV[1] is the leased event as the queue has it.

-- include: prelude
local queue_key, due_key = KEYS[1], KEYS[2]
-- include: queue

local lost = call('TYPE', KEYS[3]).ok ~= 'hash' and release(ARGV[1])
return {'OK', lost and 1 or 0}
