package store

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// Swept is what a sweep found.
type Swept struct {
	// Expired sessions that nobody had read since their time was over.
	Expired int
	// Corrupt sessions that could not be read. They are looked at again after an hour.
	Corrupt int
	// More: the limit was reached, and more may be overdue.
	More bool
	// Oldest is for how long the most overdue one had been due; zero: none was.
	Oldest time.Duration
}

// Sweep expires sessions of the bucket whose time is over, the longest overdue first and at most limit
// of them. Errors: ErrCorrupt, ErrUnavailable.
func (s *Store) Sweep(ctx context.Context, bucket session.Bucket, limit int) (Swept, error) {
	answer, err := s.run(ctx, sweepScript, []string{keyspaceOf(bucket).expiry()}, limit)
	if err != nil {
		return Swept{}, fmt.Errorf("sweep a bucket: %w", err)
	}
	word, swept := answer.text(), Swept{Expired: int(answer.integer()), Corrupt: int(answer.integer())}
	swept.More = answer.integer() >= int64(limit)
	swept.Oldest = time.Duration(answer.integer()) * time.Millisecond
	if word != wordOK || answer.broken {
		return Swept{}, fmt.Errorf("sweep a bucket: %w", ErrCorrupt)
	}
	return swept, nil
}
