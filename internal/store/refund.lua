local session_key, ended_key, queue_key, due_key, feed_key, refund_key, owed_key, requested_key, refunds_key, account_requested_key = unpack(KEYS, 1, 10)
local merchant_deleted, payment_ref, refund_ref, cents, keep, max_refunds, replicated, history = unpack(ARGV, 1, 8)
-- uses: clock, sessions, refused, owed, refunds, refund_decisions

-- Records that a rail has paid back a payment, or a part of it, asked or not.
-- ended_key is the event of the session's end, refund_key is the event of this refund. owed_key lists the payments to be refunded,
-- requested_key the open requests, refunds_key both, of this rail, and account_requested_key the open requests of this account.
-- Behind the last key are the events of the rejection of requests that will not fit any more, and behind the last argument are
-- their ids.
-- payment_ref and refund_ref are '<rail> <reference>'. keep is how long to keep the session from now on in ms, max_refunds is
-- how many refunds of each rail it keeps for which no merchant has asked. replicated is 'yes' if the answer waits for replicas.
-- history is of the feed.
-- Returns {'NOT_FOUND'}, {'CORRUPT'}, {'DISPLACES', ids of requests that this refund leaves no room for and whose events are not among
-- the keys: nothing was recorded, call again with these too}, or {'OK', decision, when the refund was recorded in ms; if it was not,
-- the time of now}.

local sessions, requests = open_sessions(queue_key, due_key, history), {requested_key, refunds_key, account_requested_key}
local ref = string.match(refund_ref, ' (.*)')
local refused_field, refund_field, request_field = field.REFUSED .. payment_ref, field.REFUND .. refund_ref, field.REQUEST .. ref
local fields = sessions.read(session_key, ended_key, feed_key, refused_field, refund_field, request_field, field.LISTED)
if not fields[at.RECORD] then
  return {'NOT_FOUND'}
end
local refused, earlier, requested, kept = unpack(fields, #const.SESSION_FIELDS + 1)

-- One reference can be reported as failed, which may have ended the session, and then as paid: then it is refused too.
local taken = not refused and fields[at.PAYMENT_REF] == payment_ref and sessions.status(fields) == 'COMPLETED'
local paid, currency = '0', ''
if refused then
  paid, currency = read_refused(refused)
elseif taken then
  paid = string.match(fields[at.RECORD], const.RECORD_AMOUNT)
end
local refunds, request = read_refunds(session_key, payment_ref), requested and read_request(requested)
if not paid or not refunds or requested and not request then
  return {'CORRUPT'}
end
local of_another = request and request.payment ~= payment_ref

local state, recorded_at = 'unknown', format('%d', now_ms)
if earlier then
  local earlier_cents, earlier_at, earlier_payment = read_refund(earlier)
  state = earlier_cents == cents and earlier_payment == payment_ref and 'same' or 'other'
  recorded_at = earlier_at
elseif of_another and (refused or taken) then
  state = 'other' -- its merchant would take the event of this refund for a confirmation of that request
end
if of_another then
  request = nil
end
-- Money that has moved is never refused for what a merchant asks for or has asked for.
paid = tonumber(paid)
local confirmed = refunds.confirmed + cents
local room = request or refunds.unasked < tonumber(max_refunds)
local decision = decisions[state][(refused or taken) and 'paid' or 'unpaid'][confirmed <= paid and 'within' or 'beyond'][room and 'room' or 'full']
if decision ~= 'applied' then
  if decision == 'repeated' and request and request.status ~= 'CONFIRMED' then -- an older program recorded the refund alone
    call('HSET', session_key, request_field, confirm_request(request, cents, recorded_at))
    unlist_owed(requests, sessions.id(session_key) .. ' ' .. ref)
  elseif replicated == 'yes' then
    sessions.write_again(session_key, fields)
  end
  return {'OK', decision, recorded_at}
end

-- Of the open requests the newest make room.
local declared, displaced, missing = {}, {}, {'DISPLACES'}
for i = 9, #ARGV do
  declared[ARGV[i]] = KEYS[i + 2]
end
local open_cents = refunds.open_cents - (request and request.status == 'REQUESTED' and request.cents or 0)
for _, open in ipairs(taken and refunds.open or {}) do
  if open.id ~= ref and confirmed + open_cents > paid then
    open_cents = open_cents - open.cents
    displaced[#displaced + 1] = open
    if not declared[open.id] then
      missing[#missing + 1] = open.id
    end
  end
end
if #missing > 1 then
  return missing
end

local change = {
  [refund_field] = write_refund(cents, recorded_at, payment_ref),
  [field.LISTED] = kept or '0', -- there is something to list
  [field.REFUNDED] = taken and format('%d', confirmed) or nil,
}
if request then
  change[request_field] = confirm_request(request, cents, recorded_at)
end
local heard = merchant_deleted ~= 'yes' -- else without events, in the feed too: they have no receiver
if heard then
  sessions.change(session_key, refund_key, feed_key, 'session.payment_refunded', change,
    refund_event(payment_ref, cents, currency, paid, confirmed, ref))
else
  for name, value in pairs(change) do
    call('HSET', session_key, name, value)
  end
end
for _, open in ipairs(displaced) do
  reject_request(sessions, {
    session = session_key, event = heard and declared[open.id], feed = feed_key, lists = requests,
  }, open, const.ALREADY_REFUNDED, paid, confirmed)
end
call('PEXPIRE', session_key, keep) -- a confirmation that is repeated gets the first one's answer for as long
local id = sessions.id(session_key)
if refused and confirmed == paid then
  unlist_owed({owed_key, refunds_key}, id .. ' ' .. payment_ref)
end
if request then
  unlist_owed(requests, id .. ' ' .. ref)
end
return {'OK', decision, recorded_at}
