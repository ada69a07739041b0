local session_key, ended_key, late_key, mismatch_key, queue_key, due_key, feed_key, receipts_key, owed_key = unpack(KEYS)
local outcome, merchant_deleted, payment_ref, cents, currency, paid_at, reason, keep, max_refused, replicated, history = unpack(ARGV)
-- uses: clock, sessions, holds, refused, settle_decisions

-- Settles a session with a payment, for a rail.
-- payment_ref is '<rail> <reference>'. ended_key, late_key and mismatch_key are the events of its end, of a late and of a mismatching payment.
-- paid_at is in ms; currency, paid_at and reason are empty if not given. keep is how long to keep the session from a report on in ms, empty: no
-- longer than it is. max_refused is how many refused payments of each rail a session keeps. receipts_key lists the receipts to send, owed_key the payments to
-- be refunded. replicated is '1' if the answer waits for replicas. history is that of the feed.

local s = sessions()
local rail, ref = string.match(payment_ref, '^([^ ]*) (.*)$')
local refused_field, failures_field = 'l:' .. payment_ref, 'k:' .. rail
local fields = s.read(session_key, ended_key, feed_key, refused_field, failures_field, 'n', 'h', 'd')
if not fields[RECORD] then
  return {'NOT_FOUND'}
end

-- A payment that names the session's currency is as one that names none.
if currency ~= '' then
  local own = string.match(fields[RECORD], RECORD_CURRENCY)
  if currency == (own == '' and 'DEFAULT_CURRENCY' or own) then
    currency = ''
  end
end

-- A payment that was refused may have failed before, and settled the session by that or been recorded: then it has both, and a report is compared
-- with the one of its own outcome.
local earlier, failures, kept, hold, deleted = unpack(fields, #{SESSION_FIELDS} + 1)
kept, failures = tonumber(kept) or 0, failures or '\n'
local full = #failures >= MAX_FAILURES
if deleted then
  merchant_deleted = '1' -- whether this replica knows it or not
end
local settled = fields[PAYMENT_REF] == payment_ref
local payment, known_currency, known_cents = 'unknown', '', string.match(fields[RECORD], RECORD_AMOUNT)
local holder = hold and read_hold(hold, payment_ref)
if outcome == 'FAILED' and string.find(failures, '\n' .. ref .. '\n', 1, true) then
  payment = 'failed'
elseif earlier and not (settled and outcome == 'FAILED') then
  payment, known_cents, known_currency = 'refused', read_refused(earlier)
elseif settled then
  payment = 'settled'
elseif holder == 'other' or full and holder ~= 'self' then -- one that was not stored must not end the session when it is repeated
  payment = 'excluded'
end
local decision = known_cents and decide(payment, s.status(fields), known_cents == cents and known_currency == currency)
if not decision then
  return {'CORRUPT'}
end

local event = decision == 'late' and {'session.late_payment', late_key} or decision == 'mismatched' and {'session.payment_mismatch', mismatch_key}
local refund = event or decision == 'merchant_deleted' -- without an event, in the feed too: it has no receiver
local stored = true
if decision == 'recorded' then
  stored = not full
elseif refund and kept >= tonumber(max_refused) then -- among those of all rails; but none takes the room of another
  local own, all, count = 'l:' .. rail .. ' ', call('HGETALL', session_key), 0
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, #own) == own then
      count = count + 1
    end
  end
  stored = count < tonumber(max_refused)
end
if decision == 'merchant_deleted' and not deleted then
  call('HSET', session_key, 'd', '1') -- from now on it takes nothing, also at a replica that has not seen the deletion
end
if decision == 'applied' then
  local ending = {s = outcome, r = payment_ref, y = reason ~= '' and reason or nil, w = paid_at ~= '' and paid_at or nil}
  s.finish(session_key, ended_key, feed_key, ending)
  fields[STATUS], fields[ENDED_AT], fields[PAYMENT_REF] = outcome, ending.e, payment_ref
  fields[REASON], fields[PAID_AT] = ending.y or false, ending.w or false
  if outcome == 'COMPLETED' and fields[EMAIL] and keep ~= '' then -- a test session sends none
    -- Behind the end of the session, whose first write a full Redis refuses: from there on it refuses none. A list of another type costs
    -- mails, never a payment.
    redis.pcall('ZADD', receipts_key, now_ms, s.id(session_key))
    -- If receipts are turned off, no entry outlives its session.
    redis.pcall('ZREMRANGEBYSCORE', receipts_key, '-inf', now_ms - keep)
    redis.pcall('PEXPIRE', receipts_key, keep)
  end
elseif refund and stored then
  local record = write_refused(decision, cents, paid_at, currency)
  if event then
    local kind, event_key = unpack(event)
    s.change(session_key, event_key, feed_key, kind, {[refused_field] = record, n = kept + 1}, {r = payment_ref, v = write_amount(cents, currency), w = paid_at ~= '' and paid_at})
  else
    call('HSET', session_key, refused_field, record, 'n', kept + 1)
  end
  if keep ~= '' then -- an index: it must not fail a payment that is recorded
    redis.pcall('ZADD', owed_key, 'NX', now_ms, s.id(session_key) .. ' ' .. payment_ref)
    redis.pcall('ZREMRANGEBYSCORE', owed_key, '-inf', now_ms - keep)
    redis.pcall('PEXPIRE', owed_key, keep)
  end
end
if decision == 'recorded' and stored then
  call('HSET', session_key, failures_field, failures .. ref .. '\n', 'n', kept) -- its amount is the session's
end
if holder == 'self' then
  call('HDEL', session_key, 'h') -- whatever was reported of it
end
if (decision == 'applied' or decision == 'recorded' and stored or refund and stored) and keep ~= '' then
  call('PEXPIRE', session_key, keep) -- a report that is repeated gets the first one's answer for as long
elseif replicated == '1' then
  -- WAIT waits for the last write of its own connection (Redis 7.2, Valkey), and this answer rests on what another one may have
  -- written. A field written as it is makes no difference but to that: replicas confirm in order.
  call('HSET', session_key, 'x', fields[EXPIRES_AT])
end
return {'OK', decision, fields, stored and 0 or 1}
