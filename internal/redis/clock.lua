-- Begins every script that needs the time. Defines call, format, clock ({seconds, microseconds}), micros, now_us and now_ms.

local call, format = redis.call, string.format -- locals are faster than globals

-- Only the clock of Redis counts: those of the API's replicas need not agree.
local clock = call('TIME')
local micros = clock[2] + 0
local now_us = clock[1] * 1000000 + micros
local now_ms = (now_us - micros % 1000) / 1000

-- A time has 13 or 16 digits, and Lua's tostring() and .. stop at 14: no number is turned into text by them. A command may be
-- given a number, but formatting that takes Redis as long as a small command; format('%d') is twice as fast.
