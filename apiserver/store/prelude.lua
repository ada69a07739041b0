-- Begins every script that needs to know the time.

local call = redis.call

-- The clock of Redis is the only one: those of the API's replicas need not agree.
local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now_ms = math.floor(now_us / 1000)

-- Numbers are given to commands as they are: Redis writes all 17 digits of them, and a time in microseconds
-- has 16. Lua's own tostring() and .. stop at 14, so no number is ever turned into text here.
