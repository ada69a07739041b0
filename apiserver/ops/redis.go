package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

// redisPause is after which time a Redis that did not answer is asked again.
const redisPause = 500 * time.Millisecond

// AwaitRedis returns when Redis has answered once, or ctx ends. Until then a replica is not ready: with a
// wrong address, or a policy that keeps it from Redis, it would never serve anybody, and a rollout of such
// replicas must not go on. Later outages are everybody's, and do not count.
//
// The error is that Redis may evict what it was told to keep: without an override, a dead key would come
// back to life, and without its record, an event would be lost.
func AwaitRedis(ctx context.Context, redis *store.Store, log *slog.Logger) error {
	for said := false; ctx.Err() == nil; said = true {
		err := redis.Check(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrEviction):
			return fmt.Errorf("check Redis: %w, for it may drop sessions, events and revocations; set it and start again", err)
		case !said:
			log.Error("Redis does not answer; this replica is not ready until it does", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(redisPause):
		}
	}
	return nil
}
