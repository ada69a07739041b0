package dispatcher

import (
	"context"
	"errors"
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
	pending map[string][]rotation // by key, in the order in which they were seen
}

// rotation is the event of a rotation of a key in a namespace.
type rotation struct {
	event     feed.Event
	namespace string
}

const (
	// maxRotations bounds how many of one key wait for Redis: tenants decide how often their keys are rotated. Beyond it the oldest is lost.
	maxRotations = 16
	// rotationsPerRound bounds how many of one bucket are recorded before those that came meanwhile have their turn.
	rotationsPerRound = 8
)

func newRotations() *rotations {
	return &rotations{added: loop.NewSignal(), pending: map[string][]rotation{}}
}

// add does not wait for Redis, because a watch calls it.
func (r *rotations) add(key published.KeyRecord, merchantName string) {
	rotated := feed.KeyRotation{
		KeyID:      key.KeyID,
		Prefix:     key.Current.Prefix,
		Generation: key.Generation,
		Cause:      key.LastRotation.Cause,
	}
	event := feed.NewKeyRotated(key.MerchantID, merchantName, rotated, key.LastRotation.Time)
	event.TestMode = key.Test
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.pending[key.KeyID]
	if slices.ContainsFunc(waiting, func(other rotation) bool { return other.event.ID == event.ID }) {
		return // another change of the key
	}
	r.pending[key.KeyID] = append(waiting[max(0, len(waiting)-maxRotations+1):], rotation{event, key.Source.Namespace})
	r.added.Set()
}

// list returns the rotations, of each key in order: a later one would count as the last that was reported. The keys are in no order.
func (r *rotations) list() (all []rotation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, waiting := range r.pending {
		all = append(all, waiting...)
	}
	return all
}

// inTurn returns the rotations in turns of namespaces. It begins with any of them: in a Redis Cluster no last one would be known.
func (r *rotations) inTurn() []rotation {
	all := r.list()
	if len(all) == 0 {
		return nil
	}
	namespace := func(one rotation) string { return one.namespace }
	return loop.InTurn(all, namespace, namespace(all[0]))
}

// remove forgets an event.
func (r *rotations) remove(event feed.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keyID := event.Key.KeyID
	left := slices.DeleteFunc(r.pending[keyID], func(other rotation) bool { return other.event.ID == event.ID })
	if r.pending[keyID] = left; len(left) == 0 {
		delete(r.pending, keyID)
	}
}

// recordRotations records the events of rotations, of each Redis server until it fails. Namespaces take turns, so that one with many rotations delays no
// other.
func (d *dispatcher) recordRotations(ctx context.Context) (more bool, err error) {
	var round [session.Buckets][]feed.Event
	var turns []session.Bucket // the bucket of each event
	for _, next := range d.rotations.inTurn() {
		bucket := next.event.Bucket()
		if len(round[bucket]) == rotationsPerRound {
			more = true
			continue
		}
		round[bucket] = append(round[bucket], next.event)
		turns = append(turns, bucket)
	}
	return more, d.redis.ForEach(ctx, turns, func(ctx context.Context, bucket session.Bucket) error {
		if len(round[bucket]) == 0 {
			return nil
		}
		event := round[bucket][0]
		round[bucket] = round[bucket][1:]
		_, err := d.outbox.RecordRotation(ctx, event, d.options.Now(), d.options.History)
		if errors.Is(err, redis.ErrUnavailable) {
			round[bucket] = nil // a later one of the key would count as the last
			return err
		}
		if err != nil {
			d.log.Error("could not record the event of a key rotation", "keyID", event.Key.KeyID, "error", err)
		}
		d.rotations.remove(event)
		return nil
	})
}
