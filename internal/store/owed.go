package store

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// A refund of a payment that its session does not accept is owed until rails have confirmed refunds of all of it. The script that refuses the
// payment lists it in owedKey, and the one that records the last refund removes it. The list is an index for a metric only: the session itself decides.

// RefundsOwed counts the payments of all buckets that are to be refunded and that have waited for at least each of these ages, which are given from
// the highest on. It takes one round trip; in a Redis Cluster, one to each server. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (s *Store) RefundsOwed(ctx context.Context, ages []time.Duration) ([]int64, error) {
	args := func(call *redis.Call) {
		call.Millis("keep", s.keepReported())
		for _, age := range ages {
			call.MoreInt(age.Milliseconds())
		}
	}
	counts := make([]int64, len(ages))
	_, err := redis.Poll(ctx, s.redis, pollOwedScript, []string{owedKey}, args, func(reply *redis.Reply, _ session.Bucket) struct{} {
		for age := range ages {
			counts[age] += reply.Int()
		}
		return struct{}{}
	})
	if err != nil { // a part would look as if something had been refunded
		return nil, fmt.Errorf("count the payments to be refunded: %w", err)
	}
	return counts, nil
}
