package apiserver

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// wrongKeyLimit limits the wrong keys of one key id that are checked in Redis one by one.
var wrongKeyLimit = ratelimit.Policy{RequestsPerSecond: 10, Burst: 100}

// wrongKeys limits the load on Redis of wrong keys with a known key id. Keys that the directory accepts are not affected. Over
// the limit, all requests with other keys of the key id share one read of its override every sharedReadInterval. So a key that
// another replica issued a moment ago waits and is accepted, and a wrong one gets 401.
type wrongKeys struct {
	read  func(context.Context, ...store.KeyRef) ([]store.Override, error)
	now   func() time.Time
	limit *ratelimit.Limiter // of key ids
	reads *sharedReads[store.Override]
}

func newWrongKeys(overrides *store.Store, now func() time.Time) *wrongKeys {
	return &wrongKeys{
		read: overrides.Overrides, now: now,
		limit: ratelimit.NewLimiter(wrongKeyLimit, now), reads: newSharedReads[store.Override](),
	}
}

// check returns nil if the caller's key may be checked in Redis. If charged, call refund unless Redis refuses the key.
func (k *wrongKeys) check(ctx context.Context, from caller) (charged bool, err error) {
	if from.Live || k.charge(from.KeyID) {
		return !from.Live, nil
	}
	override, err := k.reads.join(ctx, from.KeyID, func(ctx context.Context) (store.Override, error) {
		overrides, err := k.read(ctx, store.KeyRef{MerchantID: from.Merchant.ID, KeyID: from.KeyID})
		if err != nil {
			return store.Override{}, err
		}
		return overrides[0], nil
	})
	switch {
	case err != nil:
		return false, err
	case override.Order.Compare(from.Order) < 0 || !from.acceptedBy(override, k.now()):
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
