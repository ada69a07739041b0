package store

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/store/link"
)

// copiedSettlements are answered when replicas have them, so that a failover does not undo what a rail was told. They have
// connections of their own: one that waits for replicas delays no charge.
type copiedSettlements struct {
	link   *link.Link
	copies link.Copies
}

func openSettlements(options Options) (*copiedSettlements, error) {
	if options.SettlementReplicas == 0 {
		return nil, nil
	}
	timeout := options.Timeout + options.SettlementWait // the wait comes after the script
	opened, err := link.Open(link.Options{URL: options.URL, Timeout: timeout, PoolSize: options.PoolSize})
	if err != nil {
		return nil, err
	}
	return &copiedSettlements{opened, link.Copies{Replicas: options.SettlementReplicas, Within: options.SettlementWait}}, nil
}

func (c *copiedSettlements) close() error {
	if c == nil {
		return nil
	}
	return c.link.Close()
}

// settling is the way of the settlement of one session.
type settling struct {
	*copiedSettlements

	key string
}

// Process waits for the replicas as well. A repeated report waits as the first one did: what it finds done may be on
// the master alone.
func (s settling) Process(ctx context.Context, command *redis.Cmd) error {
	return s.link.ProcessCopied(ctx, command, s.key, s.copies)
}

func (s *Store) runSettle(ctx context.Context, keys []string, args ...any) (*reply, error) {
	if s.settled == nil {
		return s.run(ctx, settleScript, keys, args...)
	}
	return s.runBy(ctx, settling{s.settled, keys[0]}, settleScript, commandOf(keys, args))
}
