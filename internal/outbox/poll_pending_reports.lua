-- uses: clock

-- Reads what there may be to report in buckets. KEYS are of each bucket in turn its watched endpoints, and its merchants with
-- blocked addresses.
-- Returns {'OK', 1 or 0 for each key: whether there is something}.

local pending, none = {'OK'}, call('EXISTS', unpack(KEYS)) == 0 -- one command instead of one a key
for i, key in ipairs(KEYS) do
  pending[i + 1] = none and 0 or call('EXISTS', key)
end
return pending
