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

const (
	// sharedReadInterval is between two shared reads of the override of one key id.
	sharedReadInterval = 100 * time.Millisecond
	// maxWrongKeyIDs is the number of key ids in each of the two generations of the limiter.
	maxWrongKeyIDs = 1 << 14
)

// wrongKeys limits the load on Redis of wrong keys with a known key id. Keys that the directory accepts are not affected. Over
// the limit, all requests with other keys of the key id share one read of its override every sharedReadInterval. So a key that
// another replica issued a moment ago waits and is accepted, and a wrong one gets 401.
type wrongKeys struct {
	read  func(context.Context, ...store.KeyRef) ([]store.Override, error)
	now   func() time.Time
	after func(time.Duration) <-chan time.Time

	mu sync.Mutex
	// young and old are the GCRA times of key ids. When young is full it replaces old, so memory is limited.
	young, old map[string]time.Time
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
		young: map[string]time.Time{}, next: map[string]*sharedRead{},
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
	case read.override.Order.Compare(from.Order) < 0 || !read.override.Accepts(from.Digest, k.now()):
		return false, unauthorizedError{reasonRotated}
	}
	return false, nil
}

// charge counts a check of a key id in Redis, and reports false over the limit.
func (k *wrongKeys) charge(keyID string) bool { return k.add(keyID, wrongKeyLimit.Interval()) }

// refund reverts a charge.
func (k *wrongKeys) refund(keyID string) { k.add(keyID, -wrongKeyLimit.Interval()) }

func (k *wrongKeys) add(keyID string, cost time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	backlog := max(0, k.paidUntil(keyID).Sub(now)) + cost
	if backlog > wrongKeyLimit.Window() {
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
