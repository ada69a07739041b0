-- KEYS: the list of a person's logins, then logins. ARGV: the names of these logins.
for i, name in ipairs(ARGV) do
  redis.call('DEL', KEYS[i + 1])
  redis.call('ZREM', KEYS[1], name)
end
return 'OK'
