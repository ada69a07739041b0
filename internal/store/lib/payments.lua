-- Expects call and session_key. Defines list_refused(), which returns the payments that a session did not take: for each '<rail> <reference>' and what
-- is stored of it.

local function list_refused()
  local all, refused = call('HGETALL', session_key), {}
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'l:' then
      refused[#refused + 1], refused[#refused + 2] = string.sub(all[i], 3), all[i + 1]
    end
  end
  return refused
end
