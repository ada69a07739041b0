-- Defines charge_report(). Uses clock.

-- Charges the budget of a merchant for one report of a change to its status.
local function charge_report(endpoint_key)
  local tat = tonumber(call('HGET', endpoint_key, field.REPORT_TAT)) or 0
  call('HSET', endpoint_key, field.REPORT_TAT, math.max(now_ms, tat) + const.REPORT_INTERVAL_MS)
  call('PEXPIRE', endpoint_key, const.ENDPOINT_KEEP_MS)
end
