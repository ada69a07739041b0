-- Expects clock, endpoint and endpoint_key. Defines charge_report().

-- Charges the budget for one report of a change to the status of a Merchant.
local function charge_report()
  local tat = tonumber(call('HGET', endpoint_key, REPORT_TAT)) or 0
  call('HSET', endpoint_key, REPORT_TAT, math.max(now_ms, tat) + REPORT_INTERVAL)
  call('PEXPIRE', endpoint_key, endpoint_keep_ms)
end
