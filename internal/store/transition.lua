-- Follows expiry.lua where somebody wants to end a session.

-- The status of a session by its fields; 'CORRUPT' has no case in the rules.
local function status_of(fields)
  return fields[1] or (fields[3] and 'CORRUPT') or 'PENDING'
end

-- Looks the verdict up in the rules, which come from session.Cancel and session.Settle as
-- '<standing>/<status>/<same or other amount>=<verdict>' for each case. nil: there is no such case.
local function verdict_of(rules, standing, status, same)
  local case = standing .. '/' .. status .. '/' .. (same and 'same' or 'other') .. '='
  local _, last = string.find(rules, case, 1, true)
  return last and string.match(rules, '[%a_]+', last + 1)
end
