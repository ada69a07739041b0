-- Makes an event a dead letter without an attempt.
-- KEYS[1] is the bucket's queue, KEYS[2] its due merchants, KEYS[3] the event, KEYS[4] the bucket's dead letters, KEYS[5] the merchant's.
-- ARGV[1] the leased event as the queue has it, ARGV[2] the reason, ARGV[3] the endpoint's last answer, ARGV[4] the merchant's name for people.

if not held(KEYS[3], ARGV[1]) then
  return {'STALE'}
end
return {'OK', dead_letter(KEYS[4], KEYS[5], KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[4])}
