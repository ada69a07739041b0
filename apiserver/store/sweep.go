package store

import (
	"context"
	"errors"
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
	return Swept{}, errors.New("not built yet")
}
