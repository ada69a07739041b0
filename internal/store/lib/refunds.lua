-- Defines rail_of(), read_refund(), write_refund(), read_request(), write_request(), decide_request(), confirm_request(),
-- read_refunds(), refund_event() and reject_request(). Uses clock, sessions and owed.
--
-- Field REFUND<rail> <reference> of a session is money that a rail has paid back: '<cents> <when it was recorded in ms> <payment>'.
--
-- Field REQUEST<refund id> of a session is what its merchant asks of the rail that was paid: '<status> <cents> <when it was requested
-- in ms> <when it was decided in ms, or 0> <asked> <payment>', and behind a tab each the merchant's reason and the reason of a rejection.
-- asked is 'whole': it asked for all that was left of the payment; 'part': for these cents; or for how many, if its rail has paid
-- back other cents under its name.

-- Returns '<rail> ' of '<rail> <reference>'.
local function rail_of(payment)
  return string.match(payment, '^[^ ]* ')
end

-- Returns the cents, when the refund was recorded in ms, and the payment; or nil if the text cannot be read.
local function read_refund(text)
  return string.match(text, '^(%d+) (%d+) ([^\t]+)')
end

local function write_refund(cents, recorded_at, payment)
  return cents .. ' ' .. recorded_at .. ' ' .. payment
end

local function write_request(request)
  return table.concat({request.status, request.cents, request.requested_at, request.decided_at, request.asked, request.payment}, ' ')
    .. '\t' .. request.reason .. '\t' .. request.reject_reason
end

-- Returns nil if the text cannot be read.
local function read_request(text)
  local request = {}
  request.status, request.cents, request.requested_at, request.decided_at, request.asked, request.payment, request.reason,
    request.reject_reason = string.match(text, '^(%u+) (%d+) (%d+) (%d+) (%w+) ([^\t]+)\t([^\t]*)\t([^\t]*)')
  return request.status and request
end

-- Returns the text of a request with its status CONFIRMED or REJECTED, when it got that in ms, and why it was rejected.
local function decide_request(request, status, decided_at, reject_reason)
  request.status, request.decided_at, request.reject_reason = status, decided_at, reject_reason or ''
  return write_request(request)
end

-- Changes a request to CONFIRMED by a refund of its name, of these cents, and returns its text.
local function confirm_request(request, cents, recorded_at)
  if request.cents ~= cents then
    request.asked, request.cents = request.asked == 'part' and request.cents or request.asked, cents
  end
  return decide_request(request, 'CONFIRMED', recorded_at)
end

-- Reads the refunds of a session and the requests for them. Returns nil if some of it cannot be read, else a table with
--   confirmed  the cents of this payment, '<rail> <reference>', that went back
--   open_cents the cents of this payment that open requests ask for
--   open       those requests, the newest first, each with its id
--   requests   how many requests the session has, whatever became of them
--   unasked    how many refunds the rail has confirmed for which there is no request, of any payment
local function read_refunds(session_key, payment)
  local rail, all = rail_of(payment), call('HGETALL', session_key)
  local own, refs, requested = field.REFUND .. rail, {}, {}
  local refunds = {confirmed = 0, open_cents = 0, open = {}, requests = 0, unasked = 0}
  for i = 1, #all, 2 do
    local name, text = all[i], all[i + 1]
    if string.sub(name, 1, #own) == own then
      local cents, _, of = read_refund(text)
      if not cents then
        return nil
      end
      refs[#refs + 1] = string.sub(name, #own + 1)
      refunds.confirmed = refunds.confirmed + (of == payment and cents or 0)
    elseif string.sub(name, 1, #field.REQUEST) == field.REQUEST then
      local request = read_request(text)
      if not request then
        return nil
      end
      request.id = string.sub(name, #field.REQUEST + 1)
      requested[request.id] = rail_of(request.payment) == rail
      refunds.requests = refunds.requests + 1
      if request.status == 'REQUESTED' and request.payment == payment then
        refunds.open_cents = refunds.open_cents + request.cents
        refunds.open[#refunds.open + 1] = request
      end
    end
  end
  for _, ref in ipairs(refs) do
    refunds.unasked = refunds.unasked + (requested[ref] and 0 or 1)
  end
  table.sort(refunds.open, function(a, b)
    if a.requested_at == b.requested_at then
      return a.id > b.id
    end
    return tonumber(a.requested_at) > tonumber(b.requested_at)
  end)
  return refunds
end

-- Returns in what the event of a refund differs from its session. paid and confirmed are of the payment, in cents.
local function refund_event(payment, cents, currency, paid, confirmed, ref, reason)
  return {
    [field.PAYMENT_REF] = payment,
    [field.AMOUNT] = currency == '' and cents or cents .. ' ' .. currency,
    [field.PAID_AT] = false,
    [field.REASON] = format('%d %d ', paid, confirmed) .. ref .. (reason and ' ' .. reason or ''),
  }
end

-- Rejects an open request. keys has the keys of the session, the event and the feed; keys.lists are the lists in which the request
-- stands. Without keys.event no event is recorded, and nothing in the feed. paid and confirmed are of its payment, in cents.
local function reject_request(sessions, keys, request, why, paid, confirmed)
  local name, text = field.REQUEST .. request.id, decide_request(request, 'REJECTED', format('%d', now_ms), why)
  if keys.event then
    sessions.change(keys.session, keys.event, keys.feed, 'session.refund_rejected', {[name] = text},
      refund_event(request.payment, request.cents, '', paid, confirmed, request.id, why))
  else
    call('HSET', keys.session, name, text)
  end
  unlist_owed(keys.lists, sessions.id(keys.session) .. ' ' .. request.id)
end
