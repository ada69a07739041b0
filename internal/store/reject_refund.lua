local session_key, ended_key, queue_key, due_key, feed_key, event_key, requested_key, refunds_key, account_requested_key = unpack(KEYS)
local merchant_deleted, payment_ref, refund_id, reason, keep, replicated, history = unpack(ARGV)
-- uses: clock, sessions, owed, refunds, reject_decisions

-- Records that a rail will not pay back what a merchant has asked for.
-- ended_key is the event of the session's end, event_key that of the rejection. requested_key lists the open requests,
-- refunds_key what this rail owes, account_requested_key the open requests of this account.
-- payment_ref is '<rail> <reference>'. keep is how long to keep the session from now on in ms. replicated is 'yes' if the
-- answer waits for replicas. history is of the feed.
-- Returns {'NOT_FOUND'}, {'CORRUPT'}, or {'OK', decision, the request as it is stored, or false}.

local sessions = open_sessions(queue_key, due_key, history)
local refund_field = field.REFUND .. rail_of(payment_ref) .. refund_id
local fields = sessions.read(session_key, ended_key, feed_key, field.REQUEST .. refund_id, refund_field)
if not fields[at.RECORD] then
  return {'NOT_FOUND'}
end
local stored, refunded = unpack(fields, #const.SESSION_FIELDS + 1)
local request, refunds = stored and read_request(stored), read_refunds(session_key, payment_ref)
local paid = tonumber(string.match(fields[at.RECORD], const.RECORD_AMOUNT))
if stored and not request or not refunds or not paid then
  return {'CORRUPT'}
end
local status = request and request.payment == payment_ref and request.status or 'none'
local decision = decisions[refunded and 'CONFIRMED' or status] -- Redis may have lost the request of a refund that was recorded
if decision == 'applied' then
  request.id = refund_id
  reject_request(sessions, {
    session = session_key, event = merchant_deleted ~= 'yes' and event_key, feed = feed_key,
    lists = {requested_key, refunds_key, account_requested_key},
  }, request, reason, paid, refunds.confirmed)
  call('PEXPIRE', session_key, keep)
  stored = write_request(request)
elseif replicated == 'yes' then
  sessions.write_again(session_key, fields)
end
return {'OK', decision, stored}
