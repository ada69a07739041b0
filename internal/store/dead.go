package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// dead holds the dead letters by the time they were given up, in milliseconds.
func (k keyspace) dead() string { return string(k) + "dead" }

// DeadLetter is an event that was given up. It is kept for 30 days.
type DeadLetter struct {
	// Event has nothing but an ID if it cannot be read.
	Event    outbox.Event
	DiedAt   time.Time
	Reason   string
	Attempts int
}

// BuryEvent makes an event a dead letter without an attempt. The reason is a word of a closed list. Errors:
// ErrLeaseLost, ErrCorrupt, ErrUnavailable.
func (s *Store) BuryEvent(ctx context.Context, lease Lease, reason string) error {
	space := lease.keyspace()
	keys := []string{space.queue(), space.due(), space.event(lease.Event.ID), space.dead()}
	answer, err := s.run(ctx, deadBuryScript, keys, lease.queued, reason)
	return leaseError("bury an event", answer, err)
}

// DeadLetterFilter selects dead letters.
type DeadLetterFilter struct {
	// MerchantID is a bare id; empty: of all merchants.
	MerchantID string
	// Limit is the largest number; 0: no limit.
	Limit int
}

func (f DeadLetterFilter) full(n int) bool { return f.Limit > 0 && n >= f.Limit }

func (f DeadLetterFilter) selects(letter DeadLetter) bool {
	return f.MerchantID == "" || f.MerchantID == letter.Event.MerchantID
}

// buckets are those in which such a dead letter may be.
func (f DeadLetterFilter) buckets() []session.Bucket {
	if f.MerchantID != "" {
		return []session.Bucket{session.BucketOf(f.MerchantID)}
	}
	return everyBucket()
}

func everyBucket() []session.Bucket {
	buckets := make([]session.Bucket, session.Buckets)
	for i := range buckets {
		buckets[i] = session.Bucket(i)
	}
	return buckets
}

// DeadLetters returns dead letters, the newest first. Errors: ErrCorrupt, ErrUnavailable.
func (s *Store) DeadLetters(ctx context.Context, filter DeadLetterFilter) ([]DeadLetter, error) {
	var letters []DeadLetter
	for _, bucket := range filter.buckets() {
		found, err := s.deadLettersIn(ctx, bucket, filter)
		if err != nil {
			return nil, fmt.Errorf("read dead letters: %w", err)
		}
		letters = append(letters, found...)
	}
	slices.SortStableFunc(letters, func(a, b DeadLetter) int {
		return cmp.Or(b.DiedAt.Compare(a.DiedAt), cmp.Compare(a.Event.ID, b.Event.ID))
	})
	if filter.full(len(letters)) {
		letters = letters[:filter.Limit]
	}
	return letters, nil
}

// deadPage is how many dead letters are read in one script, which holds Redis up meanwhile.
const deadPage = 100

// deadLettersIn reads the newest of a bucket, as many as the filter asks for.
func (s *Store) deadLettersIn(ctx context.Context, bucket session.Bucket, filter DeadLetterFilter) ([]DeadLetter, error) {
	space := keyspaceOf(bucket)
	var letters []DeadLetter
	for skip, read := 0, deadPage; read == deadPage && !filter.full(len(letters)); skip += read {
		answer, err := s.run(ctx, deadListScript, []string{space.dead()}, skip, deadPage, space.event(""), eventLifetime.Milliseconds())
		if err != nil {
			return nil, err
		}
		ok := answer.text() == wordOK
		read = int(answer.integer())
		rows := answer.list()
		if !ok || answer.broken {
			return nil, ErrCorrupt
		}
		for len(rows.rest) > 0 && !filter.full(len(letters)) {
			letter, err := deadLetterOf(rows.list())
			if err != nil {
				return nil, err
			}
			if filter.selects(letter) {
				letters = append(letters, letter)
			}
		}
	}
	return letters, nil
}

func deadLetterOf(row *reply) (DeadLetter, error) {
	id := row.text()
	letter := DeadLetter{DiedAt: row.millis(), Reason: row.optionalText(), Attempts: int(row.integer())}
	event, err := eventOf(id, row.pairs())
	if row.broken {
		return DeadLetter{}, ErrCorrupt
	}
	if err != nil {
		event = outbox.Event{ID: id}
	}
	letter.Event = event
	return letter, nil
}
