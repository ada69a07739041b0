local session_key, ended_key, queue_key, due_key, feed_key, event_key, refund_key, requested_key, refunds_key, account_requested_key = unpack(KEYS)
local payment, refund_id, cents, reason, keep, replicated, history = unpack(ARGV)
-- uses: clock, sessions, owed, refunds, request_decisions, request_refund

-- Records that a merchant's people ask for a refund. lib/request_refund describes keys and arguments; history is of the feed.
-- Returns {word}, or {'OK', decision, the request as it is stored}.

return {request_refund(open_sessions(queue_key, due_key, history), {
  session = session_key, ended = ended_key, event = event_key, refund = refund_key, feed = feed_key,
  lists = {requested_key, refunds_key, account_requested_key},
}, payment, refund_id, cents, reason, keep, replicated)}
