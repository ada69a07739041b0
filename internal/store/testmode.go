package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// settleTests plays the payments of overdue test sessions that get one without anybody's doing. The session stays in the index until the sweep
// has seen it, so a program that ends in between loses nothing, and a second one finds its payment reported. The error is
// redis.ErrUnavailable.
func (s *Store) settleTests(ctx context.Context, space redis.Keyspace, overdue []overdueEntry) error {
	for _, entry := range overdue {
		id, err := session.ParseID(strings.TrimPrefix(entry.name, space.Key(sessionhash.Key)))
		if err != nil || !id.TestMode() {
			continue // it is for the sweep alone
		}
		if err := s.settleOverdueTest(ctx, id); errors.Is(err, redis.ErrUnavailable) {
			return fmt.Errorf("settle a test session: %w", err)
		} // other errors are of one session, and left to the sweep
	}
	return nil
}

func (s *Store) settleOverdueTest(ctx context.Context, id session.ID) error {
	read, err := s.WatchedSession(ctx, id)
	if err != nil {
		return err
	}
	outcome, settles := session.NewTestOutcome(read.AmountCents)
	if !settles || outcome.Payment == (session.Payment{}) || outcome.Late != read.Status.Final() {
		return nil
	}
	_, err = s.SettleTest(ctx, id, outcome.Payment)
	return err
}
