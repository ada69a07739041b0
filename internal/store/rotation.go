package store

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// RecordRotation records the event, made by outbox.KeyRotated, unless one of this or a later generation
// of the key was recorded before. A key that no rotation has been told of yet tells of this one only if it
// is younger than an event is kept. It reports whether the event was recorded. Errors: ErrCorrupt,
// ErrUnavailable.
func (s *Store) RecordRotation(ctx context.Context, event outbox.Event, now time.Time) (bool, error) {
	args := []any{
		event.Key.Generation, toldLifetime.Milliseconds(), flag(now.Sub(event.OccurredAt) < eventLifetime), event.MerchantID,
	}
	space := keyspaceOf(event.Bucket())
	keys := []string{space.told(event.Key.KeyID), space.event(event.ID), space.queue(), space.due()}
	answer, err := s.run(ctx, rotationScript, keys, append(args, rotationFields(event)...)...)
	if err != nil {
		return false, fmt.Errorf("record a rotation: %w", err)
	}
	word, recorded := answer.text(), answer.integer() == 1
	if word != wordOK || answer.broken {
		return false, fmt.Errorf("record a rotation: %w", ErrCorrupt)
	}
	return recorded, nil
}
