package dispatcher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// rotations are those this dispatcher has heard of and that may have to be told. Every dispatcher hears of each; the
// first one records its event.
type rotations struct {
	news chan struct{}

	mu      sync.Mutex
	pending map[string]outbox.Event // the newest of each key
}

func newRotations() *rotations {
	return &rotations{news: make(chan struct{}, 1), pending: map[string]outbox.Event{}}
}

// heard notes a key that has been rotated, and does not wait for Redis: it is called by a watch.
func (r *rotations) heard(key published.KeyRecord, merchantName string) {
	news := outbox.KeyNews{
		KeyID:      key.KeyID,
		Prefix:     key.Current.Prefix,
		Generation: key.Generation,
		Cause:      key.LastRotation.Cause,
	}
	r.mu.Lock()
	r.pending[key.KeyID] = outbox.KeyRotated(key.MerchantID, merchantName, news, key.LastRotation.Time)
	r.mu.Unlock()
	wake(r.news)
}

func (r *rotations) unrecorded() []outbox.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.pending))
}

// recorded forgets an event, unless there has been newer news of the key meanwhile.
func (r *rotations) recorded(event outbox.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending[event.Key.KeyID].ID == event.ID {
		delete(r.pending, event.Key.KeyID)
	}
}

// recordRotations records what was heard, until Redis fails.
func (d *dispatcher) recordRotations(ctx context.Context) (more bool, err error) {
	for _, event := range d.rotations.unrecorded() {
		_, err := d.store.RecordRotation(ctx, event, d.now())
		if errors.Is(err, store.ErrUnavailable) {
			return false, err
		}
		if err != nil {
			d.options.Log.Error("could not record a rotation", "keyID", event.Key.KeyID, "error", err)
		}
		d.rotations.recorded(event)
	}
	return false, nil
}
