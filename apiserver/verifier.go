package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// recordVerifier compares records that the watch brought with Redis. If Redis knows a newer one, there are three causes: the
// watch is late, which needs nothing; the published object is gone, so the key is revoked; or an older record was restored,
// which is marked as superseded for the operator.
type recordVerifier struct {
	read   func(context.Context, ...store.KeyRef) ([]store.Override, error)
	revoke func(context.Context, store.KeyRef, published.Order, time.Time) error
	// supersede marks the published record of a key id if it is older than the order.
	supersede func(context.Context, string, published.Order) (supersedeResult, error)
	now       func() time.Time
	log       *slog.Logger

	mu      sync.Mutex
	pending map[store.KeyRef]published.Order // of the records to verify
}

func newRecordVerifier(overrides *store.Store, keys publishedKeys, now func() time.Time, log *slog.Logger) *recordVerifier {
	return &recordVerifier{
		read: overrides.Overrides, revoke: overrides.RevokeGone, supersede: keys.supersede, now: now, log: log,
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
		bucket := session.BucketOf(key.MerchantID)
		buckets[bucket] = append(buckets[bucket], key)
	}
	for _, keys := range buckets {
		for chunk := range slices.Chunk(keys, store.MaxOverrides) {
			overrides, err := v.read(ctx, chunk...)
			if errors.Is(err, redis.ErrCorrupt) { // the broken one admits nobody; the others are read next time
				v.log.Error("could not read overrides", "error", err)
				continue
			}
			if err != nil {
				return
			}
			for i, key := range chunk {
				if !v.verify(ctx, key, pending[key], overrides[i].Order) {
					return
				}
			}
		}
	}
}

// verify handles one record of the order known, if Redis stores a newer order. It reports whether to go on.
func (v *recordVerifier) verify(ctx context.Context, key store.KeyRef, known, stored published.Order) bool {
	now := v.now()
	if stored.Compare(known) > 0 {
		if stored.Issued > now.UnixMilli() {
			return true // nothing that is issued now would be newer; verify it again later
		}
		result, err := v.supersedeWithTimeout(ctx, key.KeyID, stored)
		if err != nil {
			return ctx.Err() == nil && !errors.Is(err, errKubernetes)
		}
		if result == keyGone {
			err = v.revoke(ctx, key, known, now)
		}
		switch {
		case errors.Is(err, redis.ErrUnavailable):
			return false
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
