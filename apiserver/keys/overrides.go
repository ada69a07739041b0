package keys

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Overrides writes every change of a key that this replica's watch brings as an override, so that a replica without
// the Kubernetes API learns of it from its peers (it is the directory's KeyHandler). What Redis does not take is retried:
// until Redis is back, no request is answered anyway.
type Overrides struct {
	write    func(context.Context, store.Override) error
	servers  servers
	verifier *recordVerifier
	log      *slog.Logger

	mu      sync.Mutex
	pending map[session.Bucket]map[store.KeyRef]store.Override // the newest of each key
}

// servers are the servers of Redis; see redis.Client. An override for one server never waits for another server that is gone.
type servers interface {
	ByServer(ctx context.Context, buckets []session.Bucket) [][]session.Bucket
	ForEach(ctx context.Context, buckets []session.Bucket, do func(context.Context, session.Bucket) error) error
}

// overrideRetryInterval is between two attempts to write, or to verify, what is pending.
const overrideRetryInterval = time.Second

// NewOverrides returns the writer of what the watch brings.
func NewOverrides(overrides *store.Store, keys Published, log *slog.Logger, registerer prometheus.Registerer) *Overrides {
	w := &Overrides{
		write: overrides.WriteOverride, servers: overrides, verifier: newRecordVerifier(overrides, keys, log), log: log,
		pending: map[session.Bucket]map[store.KeyRef]store.Override{},
	}
	factory := promauto.With(registerer)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "merchant_operator_directory_unannounced_keys",
		Help: "API keys whose latest change this replica has not written to Redis yet.",
	}, func() float64 { return float64(w.size()) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "merchant_operator_directory_unchecked_keys",
		Help: "API keys whose published record this replica has not compared with Redis yet.",
	}, func() float64 { return float64(w.verifier.size()) })
	return w
}

func (w *Overrides) size() (keys int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pending := range w.pending {
		keys += len(pending)
	}
	return keys
}

// KeyUpdated writes the digests that the record accepts.
func (w *Overrides) KeyUpdated(record published.KeyRecord) {
	w.writeOrEnqueue(newOverride(record))
}

// KeyRevoked writes that no digest of the key is accepted.
func (w *Overrides) KeyRevoked(record published.KeyRecord) {
	w.writeOrEnqueue(store.Override{KeyRef: newKeyRef(record), Order: record.Order()})
}

// KeyEnded writes that no digest of the key is accepted, whatever was ever published of it: the operator published it before the time in
// the tombstone, and a replica by the clock of Redis.
func (w *Overrides) KeyEnded(record published.KeyRecord, ended time.Time) {
	order := record.Order()
	order.Issued = max(order.Issued, ended.UnixMilli())
	w.writeOrEnqueue(store.Override{KeyRef: newKeyRef(record), Order: order, Ended: true})
}

// KeyUnverified has the record compared with what Redis knows of its key, soon, and written if Redis knows less.
func (w *Overrides) KeyUnverified(record published.KeyRecord) {
	order := record.Order()
	first := record.Generation == 1 && order.Issued == order.Revision
	w.verifier.add(unverified{newOverride(record), first})
}

// writeOrEnqueue blocks the watch while the Redis server of the key answers. While it does not, thousands of changes must not wait for one
// timeout each.
func (w *Overrides) writeOrEnqueue(override store.Override) {
	bucket := session.MerchantBucket(override.MerchantID)
	if !w.behind(bucket) && !w.tryWrite(context.Background(), override) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending[bucket] == nil {
		w.pending[bucket] = map[store.KeyRef]store.Override{}
	}
	earlier, known := w.pending[bucket][override.KeyRef]
	order := override.Order.Compare(earlier.Order)
	switch {
	case earlier.Ended:
	case !known, override.Ended, order > 0, order == 0 && len(override.Accepted) == 0:
		w.pending[bucket][override.KeyRef] = override
	}
}

// behind reports whether overrides of the bucket's server are pending.
func (w *Overrides) behind(bucket session.Bucket) bool {
	pending := w.pendingBuckets()
	if len(pending) == 0 || slices.Contains(pending, bucket) {
		return len(pending) > 0
	}
	return slices.ContainsFunc(w.servers.ByServer(context.Background(), append(pending, bucket)), func(group []session.Bucket) bool {
		return len(group) > 1 && slices.Contains(group, bucket)
	})
}

// tryWrite writes an override and reports whether to retry.
func (w *Overrides) tryWrite(ctx context.Context, override store.Override) (retry bool) {
	err := w.write(ctx, override)
	switch {
	case err == nil:
		w.verifier.remove(override.KeyRef, override.Order)
		return false
	case errors.Is(err, store.ErrNewerOverride):
		w.verifier.add(unverified{Override: override})
		return false
	case errors.Is(err, redis.ErrUnavailable):
		return true
	}
	// The stored override cannot be read, so requests with this key get 503 until it is removed.
	w.log.Error("could not write the override of a key", "keyID", override.KeyID, "error", err)
	return false
}

// Run writes and verifies what is pending until ctx ends. In two loops: verifying waits for the Kubernetes API, which must
// not delay the overrides.
func (w *Overrides) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { every(ctx, overrideRetryInterval, w.retryPending) })
	loops.Go(func() { every(ctx, overrideRetryInterval, w.verifier.run) })
	loops.Wait()
}

func every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do(ctx)
		}
	}
}

// retryPending writes what is pending, for each Redis server until it fails again.
func (w *Overrides) retryPending(ctx context.Context) {
	_ = w.servers.ForEach(ctx, w.pendingBuckets(), func(ctx context.Context, bucket session.Bucket) error {
		for _, override := range w.pendingOverrides(bucket) {
			if w.tryWrite(ctx, override) {
				return redis.ErrUnavailable
			}
			w.forget(bucket, override)
		}
		return nil
	})
}

func (w *Overrides) pendingBuckets() []session.Bucket {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.pending))
}

func (w *Overrides) pendingOverrides(bucket session.Bucket) []store.Override {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.pending[bucket]))
}

// forget removes what was written, unless the key has changed since.
func (w *Overrides) forget(bucket session.Bucket, written store.Override) {
	w.mu.Lock()
	defer w.mu.Unlock()
	newest := w.pending[bucket][written.KeyRef]
	if newest.Order == written.Order && newest.Ended == written.Ended && len(newest.Accepted) == len(written.Accepted) {
		delete(w.pending[bucket], written.KeyRef)
	}
	if len(w.pending[bucket]) == 0 {
		delete(w.pending, bucket)
	}
}

// newOverride returns the override for replicas that have not seen the record yet. It has every digest with its end: the clock of Redis decides
// about these, not that of this replica, which would decide for all others.
func newOverride(record published.KeyRecord) store.Override {
	override := store.Override{KeyRef: newKeyRef(record), Order: record.Order()}
	for _, accepted := range record.Accepted() {
		override.Accepted = append(override.Accepted, store.Accepted(accepted))
	}
	return override
}

func newKeyRef(record published.KeyRecord) store.KeyRef {
	return store.KeyRef{MerchantID: record.MerchantID, KeyID: record.KeyID}
}
