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
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// checks compares what the watch brought with what Redis knows. Where Redis knows something newer, either the watch is late, which
// is nothing; or the published object is gone, and whoever missed its last rotation must not leave that key alive; or an older
// record was put back, which is marked as superseded for the operator.
type checks struct {
	read   func(context.Context, ...store.KeyRef) ([]store.Override, error)
	revoke func(context.Context, store.KeyRef, published.Order, time.Time) error
	// supersede marks the record that is published of a key id, if it is older than that.
	supersede func(context.Context, string, published.Order) (result supersession, err error)
	clock     func() time.Time
	logger    *slog.Logger

	doubts *doubts
}

// doubts are keys with the order of what was known of them.
type doubts struct {
	mu   sync.Mutex
	keys map[store.KeyRef]published.Order
}

func newChecks(redis *store.Store, keys publishedKeys, log *slog.Logger) checks {
	return checks{
		read: redis.Overrides, revoke: redis.RevokeGone, supersede: keys.supersede, clock: time.Now, logger: log,
		doubts: &doubts{keys: map[store.KeyRef]published.Order{}},
	}
}

func (c checks) size() int {
	c.doubts.mu.Lock()
	defer c.doubts.mu.Unlock()
	return len(c.doubts.keys)
}

func (c checks) add(key store.KeyRef, known published.Order) {
	c.doubts.mu.Lock()
	defer c.doubts.mu.Unlock()
	c.doubts.keys[key] = known
}

// settled forgets the doubt about what was known of a key up to that order.
func (c checks) settled(key store.KeyRef, known published.Order) {
	c.doubts.mu.Lock()
	defer c.doubts.mu.Unlock()
	if doubted, ok := c.doubts.keys[key]; ok && doubted.Compare(known) <= 0 {
		delete(c.doubts.keys, key)
	}
}

// perform checks all there is to check, until Redis or the Kubernetes API fails.
func (c checks) perform(ctx context.Context) {
	c.doubts.mu.Lock()
	all := maps.Clone(c.doubts.keys)
	c.doubts.mu.Unlock()
	buckets := map[session.Bucket][]store.KeyRef{}
	for key := range all {
		bucket := session.BucketOf(key.MerchantID)
		buckets[bucket] = append(buckets[bucket], key)
	}
	for _, keys := range buckets {
		for some := range slices.Chunk(keys, store.MaxOverrides) {
			overrides, err := c.read(ctx, some...)
			if errors.Is(err, store.ErrCorrupt) { // one that cannot be read admits nobody, and hides the others from this look only
				c.logger.Error("could not read overrides", "error", err)
				continue
			}
			if err != nil {
				return
			}
			for i, key := range some {
				if !c.resolve(ctx, key, all[key], overrides[i].Order) {
					return
				}
			}
		}
	}
}

// resolve finds out why Redis knows something newer than was known here, if it does. It reports whether it could.
func (c checks) resolve(ctx context.Context, key store.KeyRef, known, stored published.Order) bool {
	now := c.clock()
	if stored.Compare(known) > 0 {
		if stored.Issued > now.UnixMilli() {
			return true // nothing that is issued now would be newer; look again later
		}
		result, err := c.supersedeInTime(ctx, key.KeyID, stored)
		if err != nil {
			return ctx.Err() == nil && !errors.Is(err, errKubernetes)
		}
		if result == keyGone {
			err = c.revoke(ctx, key, known, now)
		}
		switch {
		case errors.Is(err, store.ErrUnavailable):
			return false
		case result == keySuperseded:
			c.logger.Warn("marked a published key that was put back as superseded", "keyID", key.KeyID)
		}
	}
	c.settled(key, known)
	return true
}

func (c checks) supersedeInTime(ctx context.Context, keyID string, newer published.Order) (supersession, error) {
	ctx, cancel := context.WithTimeout(ctx, rotationTimeout)
	defer cancel()
	return c.supersede(ctx, keyID, newer)
}
