local session_key, ended_key, queue_key, due_key, feed_key, late_key, mismatch_key, receipts_key, owed_key, refunds_key = unpack(KEYS)
local outcome, merchant_deleted, payment_ref, cents, currency, paid_at, reason, keep, max_refused, replicated, history = unpack(ARGV)
-- uses: clock, sessions, holds, refused, owed, list_receipt, settle_decisions

-- Settles a session with a payment, for a rail.
-- ended_key, late_key and mismatch_key are the events of its end, of a late and of a mismatching payment. receipts_key lists the
-- receipts to send, owed_key the payments to be refunded, refunds_key those of this rail.
-- payment_ref is '<rail> <reference>'. paid_at is in ms; currency, paid_at and reason are empty if not given. keep is how long to keep
-- the session from a report on in ms, empty: no longer than it is. max_refused is how many refused payments of each rail a session
-- keeps. replicated is 'yes' if the answer waits for replicas. history is of the feed.
-- Returns {'NOT_FOUND'}, {'CORRUPT'}, or {'OK', decision, fields of the session, 1 if the payment is not stored because there are too
-- many}.

local sessions = open_sessions(queue_key, due_key, history)
local rail, ref = string.match(payment_ref, '^([^ ]*) (.*)$')
local refused_field, failures_field = field.REFUSED .. payment_ref, field.FAILURES .. rail
local fields = sessions.read(session_key, ended_key, feed_key,
  refused_field, failures_field, field.LISTED, field.HOLD, field.MERCHANT_DELETED)
if not fields[at.RECORD] then
  return {'NOT_FOUND'}
end

-- A payment that names the session's currency is as one that names none.
if currency ~= '' then
  local own = string.match(fields[at.RECORD], const.RECORD_CURRENCY)
  if currency == (own == '' and const.DEFAULT_CURRENCY or own) then
    currency = ''
  end
end

-- One reference can be reported as failed and then as paid. Then both are stored, and a report is compared with the one of its own
-- outcome.
local earlier, failures, kept, hold, deleted = unpack(fields, #const.SESSION_FIELDS + 1)
kept, failures = tonumber(kept) or 0, failures or '\n'
local full = #failures >= const.MAX_FAILURES
if deleted then
  merchant_deleted = 'yes' -- whether this replica knows it or not
end
local settled = fields[at.PAYMENT_REF] == payment_ref
local payment, known_currency, known_cents = 'unknown', '', string.match(fields[at.RECORD], const.RECORD_AMOUNT)
local holder = hold and read_hold(hold, payment_ref)
if outcome == 'FAILED' and string.find(failures, '\n' .. ref .. '\n', 1, true) then
  payment = 'failed'
elseif earlier and not (settled and outcome == 'FAILED') then
  payment, known_cents, known_currency = 'refused', read_refused(earlier)
elseif settled then
  payment = 'settled'
elseif holder == 'other' or full and holder ~= 'self' then -- full: its failure may have been reported during a hold, and not stored
  payment = 'excluded'
end
local same_amount = known_cents == cents and known_currency == currency
local decision = known_cents and decide(outcome, merchant_deleted, payment, sessions.status(fields), same_amount)
if not decision then
  return {'CORRUPT'}
end

local event_kind, event_key
if decision == 'late' then
  event_kind, event_key = 'session.late_payment', late_key
elseif decision == 'mismatched' then
  event_kind, event_key = 'session.payment_mismatch', mismatch_key
end
local refund = event_kind or decision == 'merchant_deleted' -- without an event, in the feed too: it has no receiver
local stored = true
if decision == 'recorded' then
  stored = not full
elseif refund and kept >= tonumber(max_refused) then -- among those of all rails; but none takes the room of another
  local own, all, count = field.REFUSED .. rail .. ' ', call('HGETALL', session_key), 0
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, #own) == own then
      count = count + 1
    end
  end
  stored = count < tonumber(max_refused)
end
if decision == 'merchant_deleted' and not deleted then
  -- From now on the session takes nothing, also at a replica that has not seen the deletion.
  call('HSET', session_key, field.MERCHANT_DELETED, '1')
end
if decision == 'applied' then
  fields[at.ENDED_AT] = sessions.finish(session_key, ended_key, feed_key, outcome, {
    [field.PAYMENT_REF] = payment_ref,
    [field.REASON] = reason ~= '' and reason or nil,
    [field.PAID_AT] = paid_at ~= '' and paid_at or nil,
  })
  fields[at.STATUS], fields[at.PAYMENT_REF] = outcome, payment_ref
  fields[at.REASON], fields[at.PAID_AT] = reason ~= '' and reason, paid_at ~= '' and paid_at
  if outcome == 'COMPLETED' and fields[at.EMAIL] and keep ~= '' then -- a test session sends none
    -- Behind the end of the session, whose first write a full Redis refuses: from there on it refuses none.
    list_receipt(receipts_key, sessions.id(session_key), keep)
  end
elseif refund and stored then
  local record = write_refused(decision, cents, paid_at, currency)
  if event_kind then
    sessions.change(session_key, event_key, feed_key, event_kind, {
      [refused_field] = record,
      [field.LISTED] = kept + 1,
    }, {
      [field.PAYMENT_REF] = payment_ref,
      [field.AMOUNT] = write_amount(cents, currency),
      [field.PAID_AT] = paid_at ~= '' and paid_at,
    })
  else
    call('HSET', session_key, refused_field, record, field.LISTED, kept + 1)
  end
  if keep ~= '' then
    list_owed({owed_key, refunds_key}, sessions.id(session_key) .. ' ' .. payment_ref, now_ms, keep)
  end
end
if decision == 'recorded' and stored then
  call('HSET', session_key, failures_field, failures .. ref .. '\n', field.LISTED, kept) -- its amount is the session's
end
if holder == 'self' then
  call('HDEL', session_key, field.HOLD) -- whatever was reported of it
end
if (decision == 'applied' or decision == 'recorded' and stored or refund and stored) and keep ~= '' then
  call('PEXPIRE', session_key, keep) -- a report that is repeated gets the first one's answer for as long
elseif replicated == 'yes' then
  sessions.write_again(session_key, fields)
end
return {'OK', decision, fields, stored and 0 or 1}
