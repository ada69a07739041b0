package store

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/outbox"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// DeadLetterLifetime is how long an event is kept that was given up.
const DeadLetterLifetime = 30 * 24 * time.Hour

// DeadLetter is an event that was given up.
type DeadLetter struct {
	Event    outbox.Event
	DiedAt   time.Time
	Reason   string
	Attempts int
}

// DeadLetterFilter selects dead letters.
type DeadLetterFilter struct {
	// MerchantID is a bare id; empty: of all merchants.
	MerchantID string
	// Limit is the largest number; 0: no limit.
	Limit int
}

// DeadLetters returns dead letters, the newest first. The error is ErrUnavailable.
func (s *Store) DeadLetters(context.Context, DeadLetterFilter) ([]DeadLetter, error) {
	return nil, ErrUnavailable
}

// Resend makes dead letters due at once, with their schedule anew, and returns how many of the ids were dead letters.
// The error is ErrUnavailable.
func (s *Store) Resend(ctx context.Context, ids ...string) (int, error) { return 0, ErrUnavailable }

// Backlog counts what waits in one bucket or more.
type Backlog struct {
	// Due are events that wait for delivery, now or later; Dead those that were given up.
	Due, Dead int64
	// Disabled are endpoints to which no events are sent.
	Disabled int64
}

// Backlog counts what waits in a bucket. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) Backlog(context.Context, session.Bucket) (Backlog, error) {
	return Backlog{}, ErrUnavailable
}
