local session_key, ended_key, refund_key, queue_key, due_key, feed_key, owed_key = unpack(KEYS)
local merchant_deleted, payment_ref, refund_ref, cents, keep, max_refunds, replicated, history = unpack(ARGV)
-- uses: clock, sessions, refused, refund_decisions

-- Records that a rail has paid back a payment, or a part of it.
-- payment_ref and refund_ref are '<rail> <reference>'. ended_key is the event of the session's end, refund_key that of this refund. keep is how long
-- to keep the session from now on in ms, max_refunds how many refunds of each rail it keeps. owed_key lists the payments to be refunded. replicated
-- is '1' if the answer waits for replicas. history is that of the feed.

local s = sessions()
local fields = s.read(session_key, ended_key, feed_key, 'l:' .. payment_ref, 'b:' .. refund_ref, 'n')
if not fields[RECORD] then
  return {'NOT_FOUND'}
end
local refused, earlier, kept = unpack(fields, #{SESSION_FIELDS} + 1)

-- A payment that failed, and settled the session by that, may have been refused later: then it has both.
local paid, currency, taken = '0', '', not refused and fields[PAYMENT_REF] == payment_ref and s.status(fields) == 'COMPLETED'
if refused then
  paid, currency = read_refused(refused)
elseif taken then
  paid = string.match(fields[RECORD], RECORD_AMOUNT)
end

-- Each refund is '<cents> <when it was recorded in ms> <payment>'. Those of other rails are of other payments, and take no room from this one.
local own = 'b:' .. string.match(refund_ref, '^[^ ]* ')
local all, count, refunded = call('HGETALL', session_key), 0, tonumber(cents)
for i = 1, #all, 2 do
  if string.sub(all[i], 1, #own) == own then
    local part, of = string.match(all[i + 1], '^(%d+) %d+ ([^\t]+)')
    count = count + 1
    refunded = refunded and part and refunded + (of == payment_ref and part or 0)
  end
end
local state, at = 'unknown', format('%d', now_ms)
if earlier then
  local earlier_cents, earlier_at, earlier_payment = string.match(earlier, '^(%d+) (%d+) ([^\t]+)')
  state, at = earlier_cents == cents and earlier_payment == payment_ref and 'same' or 'other', earlier_at
end
if not paid or not refunded then
  return {'CORRUPT'}
end
local decision = decisions[state][(refused or taken) and 'paid' or 'unpaid'][refunded <= tonumber(paid) and 'within' or 'beyond']
  [count < tonumber(max_refunds) and 'room' or 'full']

if decision == 'applied' then
  -- n says that there is something to list.
  local change = {['b:' .. refund_ref] = cents .. ' ' .. at .. ' ' .. payment_ref, n = kept or '0', g = taken and format('%d', refunded) or nil}
  if merchant_deleted == '1' then -- without an event, in the feed too: it has no receiver
    for name, value in pairs(change) do
      call('HSET', session_key, name, value)
    end
  else
    s.change(session_key, refund_key, feed_key, 'session.payment_refunded', change,
      {r = payment_ref, v = write_amount(cents, currency), w = false, y = format('%d', paid) .. format(' %d ', refunded) .. string.match(refund_ref, ' (.*)')})
  end
  call('PEXPIRE', session_key, keep) -- a confirmation that is repeated gets the first one's answer for as long
  if refunded == tonumber(paid) then
    redis.pcall('ZREM', owed_key, s.id(session_key) .. ' ' .. payment_ref) -- an index: it must not fail a refund that is recorded
  end
elseif replicated == '1' then
  call('HSET', session_key, 'x', fields[EXPIRES_AT]) -- as in settle
end
return {'OK', decision, at}
