local merchants_key = unpack(KEYS)
local blocked_prefix, seen_suffix, reported_suffix, endpoint_prefix, first, last = unpack(ARGV)
-- uses: clock

-- Reads a page of a bucket's blocked addresses, those of the least recently reported merchants first. Only this script knows the
-- merchants, so their keys are not declared; it only reads them.
-- merchants_key has the bucket's merchants with blocked addresses, by when something was reported, in ms; 0: nothing is. The
-- prefixes and suffixes build the keys of a merchant.
-- Returns {'OK', the time in ms, how many merchants are on the page, {merchant, when something was reported, the blocks that were
-- reported last, when the next report is due (REPORT_TAT), blocks by their requests, blocks by their last request} for each}.

local page, rows = call('ZRANGE', merchants_key, first, last, 'WITHSCORES'), {}
for i = 1, #page, 2 do
  local merchant, reported_at = page[i], page[i + 1]
  local key = blocked_prefix .. merchant
  local requests = call('ZREVRANGE', key, 0, -1, 'WITHSCORES')
  if #requests == 0 and reported_at == '0' then
    call('ZREM', merchants_key, merchant) -- nothing is left, nor in the status
  else
    rows[#rows + 1] = {merchant, reported_at, call('GET', key .. reported_suffix), call('HGET', endpoint_prefix .. merchant, field.REPORT_TAT),
      requests, call('ZRANGE', key .. seen_suffix, 0, -1, 'WITHSCORES')}
  end
end
return {'OK', now_ms, #page / 2, rows}
