package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Resend makes dead letters due at once, with their schedule anew, and returns how many of the ids were dead letters.
// What they say stays as it is. Errors: ErrCorrupt, ErrUnavailable.
func (s *Store) Resend(ctx context.Context, ids ...string) (int, error) {
	var sent int
	// Not every id tells its bucket, and this is not asked for often.
	for _, bucket := range everyBucket() {
		space := keyspaceOf(bucket)
		for some := range slices.Chunk(ids, deadPage) {
			keys, args := []string{space.queue(), space.due(), space.dead()}, make([]any, len(some))
			for i, id := range some {
				keys, args[i] = append(keys, space.event(id)), id
			}
			answer, err := s.run(ctx, deadResendScript, keys, args...)
			if err != nil {
				return sent, fmt.Errorf("send dead letters again: %w", err)
			}
			ok := answer.text() == wordOK
			sent += int(answer.integer())
			if !ok || answer.broken {
				return sent, fmt.Errorf("send dead letters again: %w", ErrCorrupt)
			}
		}
	}
	return sent, nil
}

// Backlog counts what waits in a bucket.
type Backlog struct {
	// Due are events that wait for delivery, now or later; Dead those that were given up.
	Due, Dead int64
	// Troubled are endpoints that are disabled, or were resumed a moment ago.
	Troubled int64
}

// Backlog counts what waits in a bucket. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) Backlog(ctx context.Context, bucket session.Bucket) (Backlog, error) {
	space := keyspaceOf(bucket)
	answer, err := s.run(ctx, deadCountScript, []string{space.queue(), space.dead(), space.troubled()}, eventLifetime.Milliseconds())
	if err != nil {
		return Backlog{}, fmt.Errorf("count what waits: %w", err)
	}
	ok := answer.text() == wordOK
	backlog := Backlog{Due: answer.integer(), Dead: answer.integer(), Troubled: answer.integer()}
	if !ok || answer.broken {
		return Backlog{}, fmt.Errorf("count what waits: %w", ErrCorrupt)
	}
	return backlog, nil
}
