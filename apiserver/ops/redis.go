package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

// CheckRedis refuses a Redis that may evict what it was told to keep: without an override, a dead key
// would come back to life, and without its record, an event would be lost. A Redis that is away may
// come back: the role starts and waits for it.
func CheckRedis(ctx context.Context, redis *store.Store, log *slog.Logger) error {
	err := redis.Check(ctx)
	if errors.Is(err, store.ErrEviction) {
		return fmt.Errorf("check Redis: %w, for it may drop sessions, events and revocations; set it and start again", err)
	}
	if err != nil {
		log.Error("Redis does not answer; nothing can be done until it does", "error", err)
	}
	return nil
}
