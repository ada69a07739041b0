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
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// recordVerifier compares records that the watch brought with Redis. If Redis knows a newer one, there are three causes: the
// watch is late, which needs nothing; the published object is gone, so the key is revoked; or an older record was restored,
// which is marked as superseded for the operator. If Redis does not know the record, replicas whose watch is frozen may not know it either, and
// nobody else may have seen it change: then it is written.
type recordVerifier struct {
	read  func(context.Context, ...keystate.Ref) ([]keystate.Override, time.Time, error)
	write func(context.Context, keystate.Override) error
	// revoke ends a key of the order known whose override had the order stored, before its published object was seen to be gone.
	revoke func(ctx context.Context, key keystate.Ref, known, stored published.Order) error
	// supersede marks the published record of a key id if it is older than the order.
	supersede func(context.Context, string, published.Order) (supersedeResult, error)
	servers   servers
	log       *slog.Logger

	mu      sync.Mutex
	pending map[keystate.Ref]unverified
}

// unverified is a record to verify, as an override.
type unverified struct {
	keystate.Override

	// first: it is the first that was published of the key, so no replica knows another.
	first bool
}

func newRecordVerifier(overrides *keystate.Store, servers servers, keys Published, log *slog.Logger) *recordVerifier {
	audit := auditlog.New(log)
	return &recordVerifier{
		read: overrides.Overrides, write: overrides.WriteOverride, revoke: overrides.RevokeGone, servers: servers, log: log,
		supersede: func(ctx context.Context, keyID string, newer published.Order) (supersedeResult, error) {
			return keys.supersede(ctx, keyID, newer, audit)
		},
		pending: map[keystate.Ref]unverified{},
	}
}

func (v *recordVerifier) size() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.pending)
}

func (v *recordVerifier) add(record unverified) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pending[record.Ref] = record
}

// remove takes a record out, unless a newer one was added.
func (v *recordVerifier) remove(key keystate.Ref, verified published.Order) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if record, ok := v.pending[key]; ok && record.Order.Compare(verified) <= 0 {
		delete(v.pending, key)
	}
}

// run verifies what is pending, of each Redis server until that or the Kubernetes API fails.
func (v *recordVerifier) run(ctx context.Context) {
	v.mu.Lock()
	pending := maps.Clone(v.pending)
	v.mu.Unlock()
	buckets := map[session.Bucket][]keystate.Ref{}
	for key := range pending {
		bucket := session.MerchantBucket(key.MerchantID)
		buckets[bucket] = append(buckets[bucket], key)
	}
	_ = v.servers.ForEach(ctx, slices.Collect(maps.Keys(buckets)), func(ctx context.Context, bucket session.Bucket) error {
		for chunk := range slices.Chunk(buckets[bucket], keystate.MaxOverrides) {
			overrides, now, err := v.read(ctx, chunk...)
			if errors.Is(err, redis.ErrCorrupt) { // the broken one admits nobody; the others are read next time
				v.log.Error("could not read overrides", "error", err)
				continue
			}
			if err != nil {
				return err
			}
			for i, key := range chunk {
				if !v.verify(ctx, pending[key], overrides[i].Order, now) {
					return redis.ErrUnavailable // or the Kubernetes API is
				}
			}
		}
		return nil
	})
}

// verify handles one record, if Redis stored another order at the time now of its clock. It reports whether to go on.
func (v *recordVerifier) verify(ctx context.Context, record unverified, stored published.Order, now time.Time) bool {
	known := record.Order
	switch order := stored.Compare(known); {
	case order > 0 && stored.Issued > now.UnixMilli():
		return true // nothing that is issued now would be newer; verify it again later
	case order > 0:
		if err := v.behind(ctx, record.Ref, known, stored); err != nil {
			return ctx.Err() == nil && !errors.Is(err, ErrKubernetes) && !errors.Is(err, redis.ErrUnavailable)
		}
	case order < 0 && (stored != published.Order{} || record.changedSince(now.Add(-keystate.OverrideLifetime))):
		err := v.write(ctx, record.Override)
		switch {
		case errors.Is(err, redis.ErrUnavailable):
			return false
		case errors.Is(err, keystate.ErrNewerOverride):
			return true // a newer record was published since; verify it again
		}
	}
	v.remove(record.Ref, known)
	return true
}

// changedSince reports whether a replica whose watch has brought nothing since may know another record. One whose watch is older than the
// lifetime of overrides accepts no key. So a start writes no override for each of many keys that did not change.
func (r unverified) changedSince(at time.Time) bool {
	return !r.first && max(r.Order.Issued, r.Order.Revision) > at.UnixMilli()
}

// behind handles a record that is older than the override.
func (v *recordVerifier) behind(ctx context.Context, key keystate.Ref, known, stored published.Order) error {
	result, err := v.supersedeWithTimeout(ctx, key.KeyID, stored)
	if err != nil {
		return err
	}
	switch result {
	case keyGone:
		err = v.revoke(ctx, key, known, stored)
		if errors.Is(err, redis.ErrUnavailable) || errors.Is(err, keystate.ErrNewerOverride) { // published anew since: verify it again
			return err
		}
	case keySuperseded:
		v.log.Warn("marked a restored API key record as superseded", "keyID", key.KeyID)
	case keyCurrent:
	}
	return nil
}

func (v *recordVerifier) supersedeWithTimeout(ctx context.Context, keyID string, newer published.Order) (supersedeResult, error) {
	ctx, cancel := context.WithTimeout(ctx, rotationTimeout)
	defer cancel()
	return v.supersede(ctx, keyID, newer)
}
