--- refusals
-- Expects clock. Defines read_refusals(text) and save_refusals(key, refusals).
-- They are JSON: b has the blocks by their text, o all others, each {n count, w weight, f first and l last time, a fingerprint of the
-- allowlist that refused last}; r is what was reported last: {b blocks, n count, t time}.

local function read_refusals(text)
  local valid, refusals = pcall(cjson.decode, text or '{}')
  if not valid or type(refusals) ~= 'table' or type(refusals.b) ~= 'table' then
    refusals = {b = {}}
  end
  return refusals
end

local function save_refusals(key, refusals)
  call('SET', key, cjson.encode(refusals), 'PX', REFUSALS_KEEP)
end

--- record_refusals
-- Adds what an API replica has counted. KEYS[1] is the merchant's refusals, KEYS[2] the bucket's merchants with refusals. ARGV[1] is the
-- merchant id, ARGV[2] the fingerprint of its allowlist, ARGV[3] the count of other blocks, then each block and its count. Returns the
-- blocks that are kept.

local refusals = read_refusals(call('GET', KEYS[1]))
local blocks, size, oldest = refusals.b, 0, now_ms - REFUSALS_SHOWN
for block, entry in pairs(blocks) do
  if entry.l < oldest then
    blocks[block] = nil
  else
    size = size + 1
  end
end

-- Space-saving: a new block takes the place and the weight of the lightest one. So it gets in, and what is frequent stays. Its count
-- begins at 0, so that all counts together are what was counted.
local function place()
  local lightest
  for block, entry in pairs(blocks) do
    local least = lightest and blocks[lightest]
    if not least or entry.w < least.w or (entry.w == least.w and entry.l < least.l) then
      lightest = block
    end
  end
  local left = blocks[lightest]
  blocks[lightest] = nil
  return left
end

local others = tonumber(ARGV[3])
for i = 4, #ARGV, 2 do
  local entry, count = blocks[ARGV[i]], tonumber(ARGV[i + 1])
  if not entry then
    entry = {n = 0, w = 0, f = now_ms}
    if size < REFUSED_BLOCKS then
      size = size + 1
    else
      local left = place()
      entry.w, others = left.w, others + left.n
    end
    blocks[ARGV[i]] = entry
  end
  entry.n, entry.w, entry.l, entry.a = entry.n + count, entry.w + count, now_ms, ARGV[2]
end
if others > 0 then
  local before = refusals.o
  if not before or before.l < oldest or before.a ~= ARGV[2] then
    before = {n = 0, f = now_ms}
  end
  refusals.o = {n = before.n + others, f = before.f, l = now_ms, a = ARGV[2]}
end
save_refusals(KEYS[1], refusals)
call('ZADD', KEYS[2], 'NX', now_ms, ARGV[1])
local kept = {}
for block in pairs(blocks) do
  kept[#kept + 1] = block
end
return {'OK', kept}

--- list_refusals
-- Reads a page of a bucket's refusals. KEYS[1] is its merchants with refusals. ARGV[1] and ARGV[2] are what the keys of refusals and of
-- endpoints begin with, ARGV[3] and ARGV[4] the first and the last place of the page.

local rows = {}
for i, merchant in ipairs(call('ZRANGE', KEYS[1], ARGV[3], ARGV[4])) do
  rows[i] = {merchant, call('GET', ARGV[1] .. merchant), call('HGET', ARGV[2] .. merchant, 'paid')}
end
return {'OK', now_ms, rows}

--- report_refusals
-- Remembers what was reported of a merchant's refusals. KEYS[1] is the refusals, KEYS[2] the merchant's endpoint, which has the budget.
-- ARGV[1] are the blocks that were reported before, ARGV[2] those that are now, ARGV[3] the reported count.

local text = call('GET', KEYS[1])
if text then
  local refusals = read_refusals(text)
  if (refusals.r and refusals.r.b or '') == ARGV[1] then
    refusals.r = {b = ARGV[2], n = tonumber(ARGV[3]), t = now_ms}
  else
    -- Another dispatcher reported meanwhile. Nobody knows which report came last, so there must be another one.
    refusals.r = {b = '?', n = 0, t = now_ms}
  end
  if ARGV[1] ~= ARGV[2] then
    pay_report(KEYS[2])
  end
  save_refusals(KEYS[1], refusals)
end
return {'OK'}

--- forget_refusals
-- Forgets refusals, unless there were others since they were read. KEYS[1] is the merchant's refusals, KEYS[2] the bucket's merchants
-- with refusals. ARGV[1] is the merchant id, ARGV[2] what was read.

if (call('GET', KEYS[1]) or '') == ARGV[2] then
  call('DEL', KEYS[1])
  call('ZREM', KEYS[2], ARGV[1])
end
return {'OK'}
