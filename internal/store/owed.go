package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// A refund of a payment that its session does not accept is owed until rails have confirmed refunds of all of it. The script that refuses the
// payment lists it in owedKey, and the one that records the last refund removes it. The list is an index for a metric only: the session itself decides.

// RefundsOwed counts the payments of all buckets that are to be refunded and that have waited for at least each of these ages, which are given from
// the highest on. It takes one round trip; in a Redis Cluster, one to each server. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (s *Store) RefundsOwed(ctx context.Context, ages []time.Duration) ([]int64, error) {
	groups := s.bucketGroups()
	calls := make([]*redis.Call, len(groups))
	for i, group := range groups {
		call := redis.NewCall(pollOwedScript)
		for _, bucket := range group {
			call.MoreKey(redis.BucketKeyspace(bucket), owedKey)
		}
		call.Millis("keep", s.keepReported())
		for _, age := range ages {
			call.MoreInt(age.Milliseconds())
		}
		calls[i] = &call
	}
	replies, errs := s.redis.RunEach(ctx, calls)
	counts := make([]int64, len(ages))
	for i, group := range groups {
		if errs[i] != nil {
			continue
		}
		reply := &replies[i]
		reply.RequireOK()
		for range group {
			for age := range ages {
				counts[age] += reply.Int()
			}
		}
		errs[i] = reply.Err()
	}
	if err := errors.Join(errs...); err != nil { // a part would look as if something had been refunded
		return nil, fmt.Errorf("count the payments to be refunded: %w", err)
	}
	return counts, nil
}
