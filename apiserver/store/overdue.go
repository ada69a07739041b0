package store

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// Overdue is for how long what has waited longest in a bucket is due; zero: nothing is.
type Overdue struct {
	// Event waits for an attempt to deliver it, or for the end of a crashed dispatcher's lease.
	Event time.Duration
	// Session has passed its expiry and is still pending.
	Session time.Duration
}

// Overdue looks at a bucket and changes nothing. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) Overdue(ctx context.Context, bucket session.Bucket) (Overdue, error) {
	space := keyspaceOf(bucket)
	answer, err := s.run(ctx, overdueScript, []string{space.due(), space.expiry()})
	if err != nil {
		return Overdue{}, fmt.Errorf("look for what is overdue: %w", err)
	}
	ok := answer.text() == wordOK
	overdue := Overdue{
		Event:   time.Duration(answer.integer()) * time.Millisecond,
		Session: time.Duration(answer.integer()) * time.Millisecond,
	}
	if !ok || answer.broken {
		return Overdue{}, fmt.Errorf("look for what is overdue: %w", ErrCorrupt)
	}
	return overdue, nil
}
