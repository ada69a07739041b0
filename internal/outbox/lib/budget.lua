-- Expects clock, endpoint and endpoint_key. Defines charge_report().

-- A report of a change to the status of a Merchant, whatever it is about, uses up a part of one budget.
local function charge_report()
  local paid = tonumber(call('HGET', endpoint_key, 'paid')) or 0
  call('HSET', endpoint_key, 'paid', math.max(now_ms, paid) + REPORT_INTERVAL)
  call('PEXPIRE', endpoint_key, endpoint_keep_ms)
end
