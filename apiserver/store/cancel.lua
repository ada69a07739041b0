-- Cancels a session for its merchant.
-- KEYS[4] is the session, ARGV[7] the merchant id, ARGV[8] the rules.

local stored = call('MGET', KEYS[1], KEYS[2], KEYS[3])
local refusal, backlog, used = admit(stored[1], stored[2], stored[3])
if refusal then
  return refusal
end
local fields = read_session(KEYS[4])
if fields[5] ~= ARGV[7] then -- see read.lua
  return {'NOT_FOUND', now_us, backlog, used}
end
local verdict = verdict_of(ARGV[8], 'unheard', fields[1], true)
if not verdict then
  return {'CORRUPT'}
end
if verdict == 'applied' then
  end_session(KEYS[4], {s = 'CANCELLED', e = now_ms})
  fields = read_session(KEYS[4])
end
return {'OK', now_us, backlog, used, verdict, fields}
