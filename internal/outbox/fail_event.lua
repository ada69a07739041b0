local queue_key, due_key, event_key, dead_key, account_dead_key, endpoint_key, watched_key = unpack(KEYS)
local leased, delay, reason, answer, merchant_name, target, generation, lag, failing_limit, gone, merchant, health, permanent, attempt = unpack(ARGV)
-- uses: clock, full, queue, lease_held, dead_letters, endpoint, target

-- Counts a failed attempt, against the event and against the endpoint. What a former target answers says nothing about the present
-- one: nothing is counted, and the event is due at once.
-- dead_key and account_dead_key are the dead letters of the bucket and of the account, watched_key lists the endpoints with
-- something to report. leased is the leased event as the queue has it. delay is the time to the next attempt in ms, negative:
-- there is none. target, generation and lag are where the attempt went (lib/target). failing_limit is how long an endpoint may
-- fail in ms. gone is 'yes' if the endpoint says that it is gone, permanent is 'yes' if retrying cannot fix it. health is the
-- reason in the words of conditions, merchant_name is for people, and attempt is what people see of it, but for its time.
-- Returns {'STALE'}: the lease was lost; or {'OK', 1 if the event is a dead letter now, 1 if this attempt disabled the endpoint,
-- dead letters to drop, 1 if the target is outdated}.

-- Keeps the last attempts, one a line. They are in the hash of the endpoint, because a key of their own would be missing at first,
-- and a server that is moving the slot would refuse the script.
local function keep_attempt()
  local lines = (call('HGET', endpoint_key, field.ATTEMPTS) or '') .. now_ms .. '\t' .. attempt .. '\n'
  local _, kept = string.gsub(lines, '\n', '')
  if kept > const.KEPT_ATTEMPTS then
    lines = string.gsub(lines, '^[^\n]*\n', '')
  end
  call('HSET', endpoint_key, field.ATTEMPTS, lines)
end

-- Notes the failure of the endpoint, and reports whether this attempt disabled it.
local function endpoint_failed(endpoint)
  if endpoint[at.DISABLED] then
    return false -- it is disabled already; only another target ends that
  end
  if endpoint[at.TARGET] ~= target then -- what another target did does not count
    call('HDEL', endpoint_key, field.SINCE, field.PERMANENT, field.REFUSED_URL, field.HEALTHY)
    endpoint[at.SINCE], endpoint[at.PERMANENT] = false, false
  end
  local since = tonumber(endpoint[at.SINCE]) or now_ms
  call('HDEL', endpoint_key, field.CHANGED)
  note_target(endpoint_key, endpoint, target, generation)
  call('HSET', endpoint_key, field.SINCE, since, field.FAILED, now_ms, field.FAILED_REASON, health, field.ANSWER, answer)
  if permanent == 'yes' and not endpoint[at.PERMANENT] then
    call('HSET', endpoint_key, field.PERMANENT, now_ms)
  end
  call('PEXPIRE', endpoint_key, const.ENDPOINT_KEEP_MS)
  call('ZADD', watched_key, 'NX', now_ms, merchant)
  if gone ~= 'yes' and now_ms - since < tonumber(failing_limit) then
    return false
  end
  call('HSET', endpoint_key, field.DISABLED, now_ms, field.CAUSE, gone == 'yes' and 'gone' or 'failing')
  return true
end

if not lease_held(queue_key, leased, event_key) then
  return {'STALE'}
end
write_when_full('ZREM', queue_key)
local events, endpoint = open_queue(queue_key, due_key), read_endpoint(endpoint_key)
if target_outdated(endpoint, target, generation, lag) then
  events.put_back(leased, now_ms)
  return {'OK', 0, 0, {}, 1}
end
call('HINCRBY', event_key, field.ATTEMPTS, 1)
keep_attempt()
local disabled = endpoint_failed(endpoint)
local dead, excess = tonumber(delay) < 0 or disabled, {}
if dead then
  excess = dead_letter(events, dead_key, account_dead_key, event_key, leased, reason, answer, merchant_name)
else
  events.put_back(leased, now_ms + delay)
  call('HSET', event_key, field.WHY, reason)
end
return {'OK', dead and 1 or 0, disabled and 1 or 0, excess, 0}
