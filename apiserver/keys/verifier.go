package keys

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// recordVerifier compares records that the watch brought with Redis. If Redis knows a newer one, there are three causes: the
// watch is late, which needs nothing; the published object is gone, so the key is revoked; or an older record was restored,
// which is marked as superseded for the operator.
type recordVerifier struct {
	read func(context.Context, ...store.KeyRef) ([]store.Override, time.Time, error)
	// revoke ends a key of the order known whose override had the order stored, before its published object was seen to be gone.
	revoke func(ctx context.Context, key store.KeyRef, known, stored published.Order) error
	// supersede marks the published record of a key id if it is older than the order.
	supersede func(context.Context, string, published.Order) (supersedeResult, error)
	log       *slog.Logger

	mu      sync.Mutex
	pending map[store.KeyRef]published.Order // of the records to verify
}

func newRecordVerifier(overrides *store.Store, keys Published, log *slog.Logger) *recordVerifier {
	audit := auditlog.New(log)
	return &recordVerifier{
		read: overrides.Overrides, revoke: overrides.RevokeGone, log: log,
		supersede: func(ctx context.Context, keyID string, newer published.Order) (supersedeResult, error) {
			return keys.supersede(ctx, keyID, newer, audit)
		},
		pending: map[store.KeyRef]published.Order{},
	}
}

func (v *recordVerifier) size() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.pending)
}

func (v *recordVerifier) add(key store.KeyRef, order published.Order) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pending[key] = order
}

// remove takes a record out, unless a newer one was added.
func (v *recordVerifier) remove(key store.KeyRef, verified published.Order) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if order, ok := v.pending[key]; ok && order.Compare(verified) <= 0 {
		delete(v.pending, key)
	}
}

// run verifies what is pending, until Redis or the Kubernetes API fails.
func (v *recordVerifier) run(ctx context.Context) {
	v.mu.Lock()
	pending := maps.Clone(v.pending)
	v.mu.Unlock()
	buckets := map[session.Bucket][]store.KeyRef{}
	for key := range pending {
		bucket := session.MerchantBucket(key.MerchantID)
		buckets[bucket] = append(buckets[bucket], key)
	}
	for _, keys := range buckets {
		for chunk := range slices.Chunk(keys, store.MaxOverrides) {
			overrides, now, err := v.read(ctx, chunk...)
			if errors.Is(err, redis.ErrCorrupt) { // the broken one admits nobody; the others are read next time
				v.log.Error("could not read overrides", "error", err)
				continue
			}
			if err != nil {
				return
			}
			for i, key := range chunk {
				if !v.verify(ctx, key, pending[key], overrides[i].Order, now) {
					return
				}
			}
		}
	}
}

// verify handles one record of the order known, if Redis stored a newer order at the time now of its clock. It reports whether to go on.
func (v *recordVerifier) verify(ctx context.Context, key store.KeyRef, known, stored published.Order, now time.Time) bool {
	if stored.Compare(known) > 0 {
		if stored.Issued > now.UnixMilli() {
			return true // nothing that is issued now would be newer; verify it again later
		}
		result, err := v.supersedeWithTimeout(ctx, key.KeyID, stored)
		if err != nil {
			return ctx.Err() == nil && !errors.Is(err, ErrKubernetes)
		}
		if result == keyGone {
			err = v.revoke(ctx, key, known, stored)
		}
		switch {
		case errors.Is(err, redis.ErrUnavailable):
			return false
		case errors.Is(err, store.ErrNewerOverride):
			return true // published anew since; verify it again
		case result == keySuperseded:
			v.log.Warn("marked a restored API key record as superseded", "keyID", key.KeyID)
		}
	}
	v.remove(key, known)
	return true
}

func (v *recordVerifier) supersedeWithTimeout(ctx context.Context, keyID string, newer published.Order) (supersedeResult, error) {
	ctx, cancel := context.WithTimeout(ctx, rotationTimeout)
	defer cancel()
	return v.supersede(ctx, keyID, newer)
}
