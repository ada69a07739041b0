package store

import (
	"context"
	"errors"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/outbox"
)

// RecordRotation records the event, made by outbox.KeyRotated, unless one of this or a later generation
// of the key was recorded before. A key that no rotation has been told of yet tells of this one only if it
// is younger than an event is kept. It reports whether the event was recorded. Errors: ErrCorrupt,
// ErrUnavailable.
func (s *Store) RecordRotation(ctx context.Context, event outbox.Event, now time.Time) (bool, error) {
	return false, errors.New("not built yet")
}
