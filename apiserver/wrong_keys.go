package apiserver

import (
	"context"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// wrongKeyTrips is how many keys of one key id Redis refuses: 100 at once, and 10 a second after that.
var wrongKeyTrips = ratelimit.Policy{RequestsPerSecond: 10, Burst: 100}

const (
	// wrongKeyPause is between two reads of the override of one key id that too many wrong keys name.
	wrongKeyPause = 100 * time.Millisecond
	// maxWrongKeyIDs is how many key ids each of two halves of the memory holds.
	maxWrongKeyIDs = 1 << 14
)

// wrongKeys bounds the trips to Redis that wrong keys of a known key id cause. A key that the directory accepts has
// nothing to do with it. Past the bound, all requests with other keys of the key id share one read of its override every
// wrongKeyPause: a key that another replica made a moment ago is found there and goes on, and a wrong one is refused.
type wrongKeys struct {
	read  func(context.Context, ...store.KeyRef) ([]store.Override, error)
	now   func() time.Time
	pause func(time.Duration) <-chan time.Time

	mu sync.Mutex
	// paidUntil is the time by which the trips for a key id are paid for (GCRA). When the young half is full it becomes the
	// old one, and what was in that is forgotten.
	young, old map[string]time.Time
	// next is the read of each key id's override that has not begun.
	next map[string]*sharedRead
}

// sharedRead is one read for all who wait for it. Its result is there once done is closed.
type sharedRead struct {
	done     chan struct{}
	override store.Override
	err      error
}

func newWrongKeys(redis *store.Store) *wrongKeys {
	return &wrongKeys{
		read: redis.Overrides, now: time.Now, pause: time.After,
		young: map[string]time.Time{}, next: map[string]*sharedRead{},
	}
}

// check returns nil if the caller's key is worth a trip to Redis. If it was charged for one, that is to be refunded unless Redis
// refuses the key.
func (k *wrongKeys) check(ctx context.Context, from caller) (charged bool, err error) {
	if from.Live || k.charge(from.KeyID) {
		return !from.Live, nil
	}
	read := k.join(context.WithoutCancel(ctx), store.KeyRef{MerchantID: from.Merchant.ID, KeyID: from.KeyID})
	select {
	case <-read.done:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	switch {
	case read.err != nil:
		return false, read.err
	case read.override.Order.Compare(from.Order) < 0 || !read.override.Accepts(from.Digest, k.now()):
		return false, unauthorizedError{reasonDeadKey}
	}
	return false, nil
}

// charge counts a trip for a key id, or reports that it would be one too many.
func (k *wrongKeys) charge(keyID string) bool { return k.add(keyID, wrongKeyTrips.Interval()) }

// refund takes a charge back.
func (k *wrongKeys) refund(keyID string) { k.add(keyID, -wrongKeyTrips.Interval()) }

func (k *wrongKeys) add(keyID string, cost time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	backlog := max(0, k.paidUntil(keyID).Sub(now)) + cost
	if backlog > wrongKeyTrips.Window() {
		return false
	}
	if _, known := k.young[keyID]; !known && len(k.young) >= maxWrongKeyIDs {
		k.young, k.old = map[string]time.Time{}, k.young
	}
	k.young[keyID] = now.Add(backlog)
	return true
}

func (k *wrongKeys) paidUntil(keyID string) time.Time {
	if paidUntil, known := k.young[keyID]; known {
		return paidUntil
	}
	return k.old[keyID]
}

// join returns a read that begins after now, so that it finds whatever was written before.
func (k *wrongKeys) join(ctx context.Context, key store.KeyRef) *sharedRead {
	k.mu.Lock()
	defer k.mu.Unlock()
	read := k.next[key.KeyID]
	if read == nil {
		read = &sharedRead{done: make(chan struct{})}
		k.next[key.KeyID] = read
		go k.perform(ctx, key, read)
	}
	return read
}

func (k *wrongKeys) perform(ctx context.Context, key store.KeyRef, read *sharedRead) {
	defer close(read.done)
	<-k.pause(wrongKeyPause)
	k.mu.Lock()
	delete(k.next, key.KeyID)
	k.mu.Unlock()
	var overrides []store.Override
	if overrides, read.err = k.read(ctx, key); read.err == nil {
		read.override = overrides[0]
	}
}
