-- Begins every script that needs to know the time.

local call, format, KEYS, ARGV = redis.call, string.format, KEYS, ARGV -- found faster here than among the globals

-- The clock of Redis is the only one: those of the API's replicas need not agree.
local clock = call('TIME')
local micros = clock[2] + 0
local now_us = clock[1] * 1000000 + micros
local now_ms = (now_us - micros % 1000) / 1000

-- A time has 13 or 16 digits, and Lua's own tostring() and .. stop at 14: no number is turned into text by them. Given to a
-- command as a number it keeps its digits, which takes Redis as long as a small command; format('%d') is twice as fast, and what
-- is given to two commands is formatted once.
