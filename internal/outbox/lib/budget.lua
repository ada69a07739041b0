-- Expects clock and endpoint. Defines pay_report(endpoint_key).

-- A report of a change to the status of a Merchant, whatever it is about, uses up a part of one budget.
local function pay_report(key)
  local paid = tonumber(call('HGET', key, 'paid')) or 0
  call('HSET', key, 'paid', math.max(now_ms, paid) + REPORT_INTERVAL)
  call('PEXPIRE', key, endpoint_keep_ms)
end
