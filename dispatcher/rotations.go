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
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// rotations are the key rotations that this dispatcher has seen and not recorded as events yet. Every dispatcher sees
// each; the first one records its event.
type rotations struct {
	added loop.Signal

	mu      sync.Mutex
	pending map[string][]feed.Event // by key, in the order in which they were seen
}

// maxRotations bounds how many of one key wait for Redis: tenants decide how often their keys are rotated. Beyond it the oldest is lost.
const maxRotations = 16

func newRotations() *rotations {
	return &rotations{added: loop.NewSignal(), pending: map[string][]feed.Event{}}
}

// add does not wait for Redis, because a watch calls it.
func (r *rotations) add(key published.KeyRecord, merchantName string) {
	rotation := feed.KeyRotation{
		KeyID:      key.KeyID,
		Prefix:     key.Current.Prefix,
		Generation: key.Generation,
		Cause:      key.LastRotation.Cause,
	}
	event := feed.NewKeyRotated(key.MerchantID, merchantName, rotation, key.LastRotation.Time)
	event.TestMode = key.Test
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.pending[key.KeyID]
	if slices.ContainsFunc(waiting, func(other feed.Event) bool { return other.ID == event.ID }) {
		return // another change of the key
	}
	r.pending[key.KeyID] = append(waiting[max(0, len(waiting)-maxRotations+1):], event)
	r.added.Set()
}

// list returns the events, of each key in order: a later one would count as the last that was reported.
func (r *rotations) list() (all []feed.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, events := range r.pending {
		all = append(all, events...)
	}
	return all
}

// remove forgets an event.
func (r *rotations) remove(event feed.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keyID := event.Key.KeyID
	left := slices.DeleteFunc(r.pending[keyID], func(other feed.Event) bool { return other.ID == event.ID })
	if r.pending[keyID] = left; len(left) == 0 {
		delete(r.pending, keyID)
	}
}

// recordRotations records the events of rotations, of each Redis server until it fails.
func (d *dispatcher) recordRotations(ctx context.Context) (more bool, err error) {
	pending := map[session.Bucket][]feed.Event{}
	for _, event := range d.rotations.list() {
		pending[event.Bucket()] = append(pending[event.Bucket()], event)
	}
	return false, d.redis.ForEach(ctx, slices.Collect(maps.Keys(pending)), func(ctx context.Context, bucket session.Bucket) error {
		for _, event := range pending[bucket] {
			_, err := d.outbox.RecordRotation(ctx, event, d.options.Now(), d.options.History)
			if errors.Is(err, redis.ErrUnavailable) {
				return err
			}
			if err != nil {
				d.log.Error("could not record the event of a key rotation", "keyID", event.Key.KeyID, "error", err)
			}
			d.rotations.remove(event)
		}
		return nil
	})
}
