-- Admits a rotation over HTTP: the rotations of one ApiKey have a limit of their own besides the merchant's.
-- KEYS[3] is the key of that limit; ARGV[5] and ARGV[6] are what one rotation and a full burst cost, in us.

if refusal then
  return refusal .. moment
end
local cost, burst = ARGV[5] + 0, ARGV[6] + 0
local backlog = math.max(0, (tonumber(stored[3]) or 0) - now_us)
local limited = backlog + cost > burst
backlog = limited and math.min(backlog, burst) or backlog + cost
local paid = format('%d', now_us + backlog)
call('SET', KEYS[3], paid, 'PX', format('%d', backlog / 1000 + 1))
if limited then
  return 'ROTATION_LIMITED ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. paid
end
return 'OK' .. moment
