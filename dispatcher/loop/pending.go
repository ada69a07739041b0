package loop

import (
	"context"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// PendingWork returns the pending work of all buckets. While servers of a Redis Cluster are unavailable it is that of the others, and
// their error is logged.
func PendingWork(ctx context.Context, events *outbox.Outbox, log *Log) ([]outbox.PendingWork, error) {
	pending, err := events.PendingWork(ctx)
	if err != nil && len(pending) > 0 && ctx.Err() == nil {
		log.RedisFailed(err)
		return pending, nil
	}
	return pending, err
}
