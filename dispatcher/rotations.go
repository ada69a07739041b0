package dispatcher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// rotations are the key rotations that this dispatcher has seen and not recorded as events yet. Every dispatcher sees
// each; the first one records its event.
type rotations struct {
	added loop.Signal

	mu      sync.Mutex
	pending map[string]feed.Event // the newest of each key
}

func newRotations() *rotations {
	return &rotations{added: loop.NewSignal(), pending: map[string]feed.Event{}}
}

// add does not wait for Redis, because a watch calls it.
func (r *rotations) add(key published.KeyRecord, merchantName string) {
	rotation := feed.KeyRotation{
		KeyID:      key.KeyID,
		Prefix:     key.Current.Prefix,
		Generation: key.Generation,
		Cause:      key.LastRotation.Cause,
	}
	r.mu.Lock()
	event := feed.NewKeyRotated(key.MerchantID, merchantName, rotation, key.LastRotation.Time)
	event.TestMode = key.Test
	r.pending[key.KeyID] = event
	r.mu.Unlock()
	r.added.Set()
}

func (r *rotations) list() []feed.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.pending))
}

// remove forgets an event, unless the key has been rotated again meanwhile.
func (r *rotations) remove(event feed.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending[event.Key.KeyID].ID == event.ID {
		delete(r.pending, event.Key.KeyID)
	}
}

// recordRotations records the events of rotations, until Redis fails.
func (d *dispatcher) recordRotations(ctx context.Context) (more bool, err error) {
	for _, event := range d.rotations.list() {
		_, err := d.outbox.RecordRotation(ctx, event, d.now(), d.options.History)
		if errors.Is(err, redis.ErrUnavailable) {
			return false, err
		}
		if err != nil {
			d.log.Error("could not record the event of a key rotation", "keyID", event.Key.KeyID, "error", err)
		}
		d.rotations.remove(event)
	}
	return false, nil
}
