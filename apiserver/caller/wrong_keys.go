package caller

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/apiserver/coalesce"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// wrongKeyLimit limits the requests of one key id that are checked in Redis one by one only to be refused.
var wrongKeyLimit = ratelimit.Policy{RequestsPerSecond: 10, Burst: 100}

// useLimit limits the requests of one key that pass only to show a use. It stays due until Redis has answered, which it may not for long.
var useLimit = ratelimit.Policy{RequestsPerSecond: 1, Burst: 1}

// wrongKeys limits the load on Redis of wrong keys with a known key id, of those that have ended by the clock of this replica, and of requests
// that get 403, which no rate limit is charged for. Other requests of keys that the directory accepts are not affected. Over the limit, all requests with other keys of the key id share one read of its override every
// coalesce.Interval. So a key that another replica has just issued waits and is accepted, and a wrong one gets 401 also where a good one gets 403.
type wrongKeys struct {
	read func(context.Context, ...keystate.Ref) ([]keystate.Override, time.Time, error)
	// useDue reports whether the next request with a digest writes its last use.
	useDue func(apikey.Digest) bool
	limit  *ratelimit.Limiter // of key ids
	uses   *ratelimit.Limiter // of digests
	reads  *coalesce.Reads[readOverride]
}

// readOverride is an override at a time of Redis.
type readOverride struct {
	keystate.Override

	now time.Time
}

func newWrongKeys(keys *keystate.Store, useDue func(apikey.Digest) bool, now func() time.Time) *wrongKeys {
	return &wrongKeys{
		read: keys.Overrides, useDue: useDue, limit: ratelimit.NewLimiter(wrongKeyLimit, now),
		uses: ratelimit.NewLimiter(useLimit, now), reads: coalesce.NewReads[readOverride](),
	}
}

// check returns nil if the caller's key may be checked in Redis. If charged, call refund unless Redis refuses the key.
func (k *wrongKeys) check(ctx context.Context, from Caller) (charged bool, err error) {
	denied := from.admissionError()
	if from.Live && (denied == nil || k.showsUse(from.Digest)) { // a till with an old key shows, however many requests get 403
		return false, nil
	}
	if k.charge(from.KeyID) {
		return denied == nil, nil
	}
	override, err := k.reads.Join(ctx, from.KeyID, func(ctx context.Context) (readOverride, error) {
		overrides, now, err := k.read(ctx, keystate.Ref{MerchantID: from.Merchant.ID, KeyID: from.KeyID})
		if err != nil {
			return readOverride{}, err
		}
		return readOverride{overrides[0], now}, nil
	})
	switch {
	case err != nil:
		return false, err
	case !from.acceptedBy(override.Override, override.now):
		return false, admission.ErrKeyRejected
	}
	return false, denied
}

// showsUse reports whether a request with a digest is to show that the key is used.
func (k *wrongKeys) showsUse(digest apikey.Digest) bool {
	if !k.useDue(digest) {
		return false
	}
	_, allowed := k.uses.Allow(string(digest[:]))
	return allowed
}

// charge counts a check of a key id in Redis, and reports false over the limit.
func (k *wrongKeys) charge(keyID string) bool {
	_, allowed := k.limit.Allow(keyID)
	return allowed
}

// refund reverts a charge.
func (k *wrongKeys) refund(keyID string) { k.limit.Refund(keyID) }
