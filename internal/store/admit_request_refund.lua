local rate_key, override_key, session_key, ended_key, queue_key, due_key, feed_key, event_key, refund_key, requested_key, refunds_key, account_requested_key, last_use_key = unpack(KEYS)
local cost, burst, known_key, flags, payment, refund_id, cents, reason, keep, replicated, history = unpack(ARGV)
local stored = redis.call('MGET', rate_key, override_key)
local tat, override = stored[1], stored[2]
-- uses: clock, admission, sessions, owed, refunds, request_decisions, request_refund

-- Records that a merchant's key asks for a refund. lib/admission describes rate_key, override_key, last_use_key and the first four
-- arguments, lib/request_refund the others; history is of the feed.
-- Returns '<result><quota>', or {'<word><quota>'}, or {'OK<quota>', decision, the request as it is stored}.

if result then
  return result .. quota
end
local word, decision, request = request_refund(open_sessions(queue_key, due_key, history), {
  session = session_key, ended = ended_key, event = event_key, refund = refund_key, feed = feed_key,
  lists = {requested_key, refunds_key, account_requested_key},
}, payment, refund_id, cents, reason, keep, replicated)
return {word .. quota, decision, request}
