package apiserver

import (
	"context"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// wrongKeyLimit limits the wrong keys of one key id that are checked in Redis one by one.
var wrongKeyLimit = ratelimit.Policy{RequestsPerSecond: 10, Burst: 100}

// sharedReadInterval is between two shared reads of the override of one key id.
const sharedReadInterval = 100 * time.Millisecond

// wrongKeys limits the load on Redis of wrong keys with a known key id. Keys that the directory accepts are not affected. Over
// the limit, all requests with other keys of the key id share one read of its override every sharedReadInterval. So a key that
// another replica issued a moment ago waits and is accepted, and a wrong one gets 401.
type wrongKeys struct {
	read  func(context.Context, ...store.KeyRef) ([]store.Override, error)
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
	limit *ratelimit.Limiter // of key ids

	mu sync.Mutex
	// next is the shared read of each key id that has not started yet.
	next map[string]*sharedRead
}

// sharedRead is one read for all waiting requests. Its result is valid once done is closed.
type sharedRead struct {
	done     chan struct{}
	override store.Override
	err      error
}

func newWrongKeys(overrides *store.Store) *wrongKeys {
	return &wrongKeys{
		read: overrides.Overrides, now: time.Now, after: time.After,
		limit: ratelimit.NewLimiter(wrongKeyLimit, time.Now), next: map[string]*sharedRead{},
	}
}

// check returns nil if the caller's key may be checked in Redis. If charged, call refund unless Redis refuses the key.
func (k *wrongKeys) check(ctx context.Context, from caller) (charged bool, err error) {
	if from.Live || k.charge(from.KeyID) {
		return !from.Live, nil
	}
	read := k.joinRead(context.WithoutCancel(ctx), store.KeyRef{MerchantID: from.Merchant.ID, KeyID: from.KeyID})
	select {
	case <-read.done:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	switch {
	case read.err != nil:
		return false, read.err
	case read.override.Order.Compare(from.Order) < 0 || !from.acceptedBy(read.override, k.now()):
		return false, unauthorizedError{reasonRotated}
	}
	return false, nil
}

// charge counts a check of a key id in Redis, and reports false over the limit.
func (k *wrongKeys) charge(keyID string) bool {
	_, allowed := k.limit.Allow(keyID)
	return allowed
}

// refund reverts a charge.
func (k *wrongKeys) refund(keyID string) { k.limit.Refund(keyID) }

// joinRead returns a read that starts later, so that it finds everything written before.
func (k *wrongKeys) joinRead(ctx context.Context, key store.KeyRef) *sharedRead {
	k.mu.Lock()
	defer k.mu.Unlock()
	read := k.next[key.KeyID]
	if read == nil {
		read = &sharedRead{done: make(chan struct{})}
		k.next[key.KeyID] = read
		go k.readOverride(ctx, key, read)
	}
	return read
}

func (k *wrongKeys) readOverride(ctx context.Context, key store.KeyRef, read *sharedRead) {
	defer close(read.done)
	<-k.after(sharedReadInterval)
	k.mu.Lock()
	delete(k.next, key.KeyID)
	k.mu.Unlock()
	var overrides []store.Override
	if overrides, read.err = k.read(ctx, key); read.err == nil {
		read.override = overrides[0]
	}
}
