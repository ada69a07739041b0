-- Reads a session for its merchant.
-- KEYS[4] is the session, ARGV[7] the merchant id.

local stored = call('MGET', KEYS[1], KEYS[2], KEYS[3])
local refusal, backlog, used = admit(stored[1], stored[2], stored[3])
if refusal then
  return refusal
end
local fields = read_session(KEYS[4])
-- Two merchants may share a bucket, so the key alone does not tell whose session this is.
if fields[5] ~= ARGV[7] then
  return {'NOT_FOUND', now_us, backlog, used}
end
return {'OK', now_us, backlog, used, fields}
