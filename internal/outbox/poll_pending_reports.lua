-- uses: clock

-- Reads what there may be to report in buckets. KEYS are of each bucket in turn its watched endpoints, and its merchants with blocked addresses.

local pending = {'OK'}
for i, key in ipairs(KEYS) do
  pending[i + 1] = call('EXISTS', key)
end
return pending
