package storetest

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// backlogScript makes copies of an event, which are due.
const backlogScript = `
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, ARGV[2] do
  local id = string.format('evt_%012d', i)
  redis.call('HSET', ARGV[1] .. 'event:' .. id, unpack(fields))
  redis.call('ZADD', ARGV[1] .. 'queue', 0, ARGV[3] .. ':0000000000001:' .. id)
end
redis.call('ZADD', ARGV[1] .. 'due', 1, ARGV[3])
return 1`

// CopyEvent queues so many copies of the event at a key, all of them due, for the merchant.
func CopyEvent(t testing.TB, c goredis.Scripter, key, merchantID string, copies int) {
	t.Helper()
	Must(t, c.Eval(t.Context(), backlogScript, []string{key}, BucketTag(session.MerchantBucket(merchantID)), copies, merchantID).Err())
}
