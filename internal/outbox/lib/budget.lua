-- Expects clock, endpoint and endpoint_key. Defines charge_report().

-- Charges the budget for one report of a change to the status of a Merchant. 'paid' is the limiter's theoretical arrival time (tat).
local function charge_report()
  local tat = tonumber(call('HGET', endpoint_key, 'paid')) or 0
  call('HSET', endpoint_key, 'paid', math.max(now_ms, tat) + REPORT_INTERVAL)
  call('PEXPIRE', endpoint_key, endpoint_keep_ms)
end
