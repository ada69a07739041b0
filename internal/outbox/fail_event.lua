local queue_key, due_key, event_key, dead_key, account_dead_key, endpoint_key, watched_key = unpack(KEYS)
local leased, delay, reason, answer, merchant_name, target, generation, lag, failing_limit, gone, merchant, health, permanent, attempt = unpack(ARGV)
-- uses: clock, full, queue, lease_held, forget_dead_letters, dead_letters, endpoint, target

-- Counts a failed attempt, against the event and against the endpoint.
-- leased is the leased event as the queue has it, delay the time to the next attempt in ms, negative: none. target, generation and lag are where the
-- attempt went, as the caller knows it (target.lua). failing_limit is how long an endpoint may fail in ms. gone is '1' if it says that it is gone,
-- permanent '1' if retrying cannot fix it. health is the reason in the words of conditions, merchant_name is for people. attempt is what people see
-- of it, but for its time.
-- Returns 'STALE', or 'OK' and: 1 if the event is a dead letter now, 1 if this attempt disabled the endpoint, the dead letters to drop, and 1 if the
-- target is outdated. What a former target answers says nothing about the present one: nothing is counted, and the event is due at once.

-- Keeps the last attempts, one a line. They are in the hash of the endpoint, because a key of their own would be missing at first, and a server
-- that is moving the slot would refuse the script.
local function keep_attempt()
  local lines = (call('HGET', endpoint_key, 'attempts') or '') .. now_ms .. '\t' .. attempt .. '\n'
  local _, kept = string.gsub(lines, '\n', '')
  if kept > KEPT_ATTEMPTS then
    lines = string.gsub(lines, '^[^\n]*\n', '')
  end
  call('HSET', endpoint_key, 'attempts', lines)
end

-- Whether this attempt disabled the endpoint.
local function endpoint_failed(endpoint)
  if endpoint[DISABLED] then
    return false -- it is disabled already; only another target ends that
  end
  if endpoint[TARGET] ~= target then -- what another target did does not count
    call('HDEL', endpoint_key, 'since', 'permanent', 'healthy')
    endpoint[SINCE], endpoint[PERMANENT] = false, false
  end
  local since = tonumber(endpoint[SINCE]) or now_ms
  call('HDEL', endpoint_key, 'changed')
  note_target(endpoint_key, endpoint, target, generation)
  call('HSET', endpoint_key, 'since', since, 'failed', now_ms, 'reason', health, 'answer', answer)
  if permanent == '1' and not endpoint[PERMANENT] then
    call('HSET', endpoint_key, 'permanent', now_ms)
  end
  call('PEXPIRE', endpoint_key, endpoint_keep_ms)
  call('ZADD', watched_key, 'NX', now_ms, merchant)
  if gone ~= '1' and now_ms - since < tonumber(failing_limit) then
    return false
  end
  call('HSET', endpoint_key, 'disabled', now_ms, 'cause', gone == '1' and 'gone' or 'failing')
  return true
end

if not lease_held() then
  return {'STALE'}
end
write_when_full('ZREM', queue_key)
local endpoint = read_endpoint(endpoint_key)
if target_outdated(endpoint, target, generation, lag) then
  events.put_back(leased, now_ms)
  return {'OK', 0, 0, {}, 1}
end
call('HINCRBY', event_key, 'attempts', 1)
keep_attempt()
local disabled = endpoint_failed(endpoint)
local dead, excess = tonumber(delay) < 0 or disabled, {}
if dead then
  excess = dead_letter(event_key, leased, reason, answer, merchant_name)
else
  events.put_back(leased, now_ms + delay)
  call('HSET', event_key, 'why', reason)
end
return {'OK', dead and 1 or 0, disabled and 1 or 0, excess, 0}
