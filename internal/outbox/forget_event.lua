local queue_key, due_key, event_key = unpack(KEYS)
local leased = unpack(ARGV)
-- uses: clock, queue

-- Takes a leased event out of the queue that is none: its time is over, or its key holds something else.
-- leased is the leased event as the queue has it.
-- Returns {'OK', 1 if it was taken out}.

local lost = call('TYPE', event_key).ok ~= 'hash' and open_queue(queue_key, due_key).release(leased)
return {'OK', lost and 1 or 0}
