-- Defines request_refund(). Uses clock, sessions, owed, refunds and request_decisions.

-- Records that a merchant asks for a refund of the payment that completed a session, '<rail> <reference>', which the caller has read.
-- keys has
--   session, feed
--   ended    the event of the session's end
--   event    the event of the request
--   refund   the event of the refund, in test mode
--   lists    the lists of open requests
-- refund_id names the request. cents are empty for all that is left; reason may be empty. keep is how long to keep the session from
-- now on in ms; empty: it is of test mode, where the request is confirmed at once. replicated is 'yes' if the answer waits for
-- replicas.
-- Returns 'OK', the decision and the request as it is stored, if there is one; or 'NOT_FOUND', 'CORRUPT', or 'OTHER_PAYMENT': another
-- one has completed the session than the caller has read.
local function request_refund(sessions, keys, payment, refund_id, cents, reason, keep, replicated)
  local name = field.REQUEST .. refund_id
  local refund_field = field.REFUND .. rail_of(payment) .. refund_id
  local fields = sessions.read(keys.session, keys.ended, keys.feed, name, field.LISTED, refund_field)
  if not fields[at.RECORD] then
    return 'NOT_FOUND'
  end
  local stored, kept, refunded = unpack(fields, #const.SESSION_FIELDS + 1)
  local completed = sessions.status(fields) == 'COMPLETED'
  if completed and fields[at.PAYMENT_REF] ~= payment then
    return 'OTHER_PAYMENT'
  end
  local paid, refunds = tonumber(string.match(fields[at.RECORD], const.RECORD_AMOUNT)), read_refunds(keys.session, payment)
  local earlier = stored and read_request(stored)
  if not paid or not refunds or stored and not earlier then
    return 'CORRUPT'
  end

  local confirmed_cents, confirmed_at, of = read_refund(refunded or '')
  local left, asked = paid - refunds.confirmed - refunds.open_cents, cents == '' and 'whole' or 'part'
  local amount = cents == '' and left or tonumber(cents)
  local state = 'unknown'
  if earlier then
    local first = tonumber(earlier.asked) and earlier.asked or earlier.cents
    state = (cents == first or cents == '' and earlier.asked == 'whole') and 'same' or 'other'
  elseif refunded and (of ~= payment or cents ~= '' and cents ~= confirmed_cents) then
    state = 'other'
  elseif completed and refunded and refunds.requests < const.MAX_REQUESTS then -- its rail has confirmed it: Redis has lost the request in a failover
    local text = decide_request({
      cents = confirmed_cents, requested_at = format('%d', now_ms), asked = asked, payment = payment, reason = reason,
    }, 'CONFIRMED', confirmed_at)
    call('HSET', keys.session, name, text)
    return 'OK', 'applied', text
  end
  local within = amount > 0 and amount <= left
  local room = refunds.requests < const.MAX_REQUESTS and #refunds.open < const.MAX_OPEN_REQUESTS
  local decision = decisions[state][completed and 'completed' or 'unpaid'][within and 'within' or 'beyond'][room and 'room' or 'full']
  if decision ~= 'applied' then
    if decision == 'repeated' and earlier.status == 'REQUESTED' and keep ~= '' then -- Redis may have lost it from a list
      list_owed(keys.lists, sessions.id(keys.session) .. ' ' .. refund_id, earlier.requested_at, keep)
    end
    if replicated == 'yes' then
      sessions.write_again(keys.session, fields)
    end
    return 'OK', decision, stored
  end

  amount = format('%d', amount)
  local now = format('%d', now_ms)
  local request = {
    status = 'REQUESTED', cents = amount, requested_at = now, decided_at = '0', asked = asked, payment = payment, reason = reason,
    reject_reason = '',
  }
  sessions.change(keys.session, keys.event, keys.feed, 'session.refund_requested', {
    [name] = write_request(request),
    [field.LISTED] = kept or '0', -- there is something to list
  }, refund_event(payment, amount, '', paid, refunds.confirmed, refund_id, reason))
  if keep ~= '' then
    call('PEXPIRE', keys.session, keep)
    list_owed(keys.lists, sessions.id(keys.session) .. ' ' .. refund_id, now_ms, keep)
    return 'OK', decision, write_request(request)
  end

  local confirmed = refunds.confirmed + amount
  sessions.change(keys.session, keys.refund, keys.feed, 'session.payment_refunded', {
    [name] = decide_request(request, 'CONFIRMED', now),
    [refund_field] = write_refund(amount, now, payment),
    [field.REFUNDED] = format('%d', confirmed),
  }, refund_event(payment, amount, '', paid, confirmed, refund_id))
  return 'OK', decision, write_request(request)
end
