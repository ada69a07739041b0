package loop

import "context"

// Pending reads something of all buckets. While servers of a Redis Cluster are unavailable it is that of the others, and their error is
// logged.
func Pending[T any](ctx context.Context, read func(context.Context) ([]T, error), log *Log) ([]T, error) {
	pending, err := read(ctx)
	if err != nil && len(pending) > 0 && ctx.Err() == nil {
		log.RedisFailed(err)
		return pending, nil
	}
	return pending, err
}
