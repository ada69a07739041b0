package keys

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// Overrides writes every change of a key that this replica's watch brings as an override, so that a replica without
// the Kubernetes API learns of it from its peers (it is the directory's KeyHandler). It writes beside the watch, which a slow Redis must not
// delay. What Redis does not take is retried: until Redis is back, no request is answered anyway.
type Overrides struct {
	write    func(context.Context, keystate.Override) error
	servers  servers
	verifier *recordVerifier
	log      *slog.Logger

	mu     sync.Mutex
	queues map[session.Bucket]*overrideQueue // of buckets with overrides to write
}

// overrideQueue has the overrides of a bucket that are not written yet.
type overrideQueue struct {
	newest   map[keystate.Ref]queuedOverride // of each key
	revoking map[keystate.Ref]bool           // the keys of those that revoke: they are written first
	// failed: Redis has not taken one. They are retried at intervals, and what comes is not tried before.
	failed bool
	// writing: a goroutine writes them.
	writing bool
}

// queuedOverride is an override to write.
type queuedOverride struct {
	keystate.Override

	// written is called when it is written, or has failed; nil: nobody waits for it.
	written func()
	// refused: Redis is full. It is tried again at intervals, and delays no other one: a revocation needs no memory.
	refused bool
}

// maxOverrideWrites is how many overrides of a bucket are written at once: a slow network must not make a queue of a trip for each.
const maxOverrideWrites = 32

// servers are the servers of Redis; see redis.Client. An override for one server never waits for another server that is gone.
type servers interface {
	ByServer(ctx context.Context, buckets []session.Bucket) [][]session.Bucket
	ForEach(ctx context.Context, buckets []session.Bucket, do func(context.Context, session.Bucket) error) error
}

// overrideRetryInterval is between two attempts to write, or to verify, what is pending.
const overrideRetryInterval = time.Second

// NewOverrides returns the writer of what the watch brings.
func NewOverrides(overrides *keystate.Store, servers *redis.Client, keys Published, log *slog.Logger, registerer prometheus.Registerer) *Overrides {
	w := &Overrides{
		write: overrides.WriteOverride, servers: servers, verifier: newRecordVerifier(overrides, servers, keys, log), log: log,
		queues: map[session.Bucket]*overrideQueue{},
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
	for _, queue := range w.queues {
		keys += len(queue.newest)
	}
	return keys
}

// KeyUpdated writes the digests that the record accepts.
func (w *Overrides) KeyUpdated(record published.KeyRecord, written func()) {
	w.enqueue(queuedOverride{Override: newOverride(record), written: written})
}

// KeyRevoked writes that no digest of the key is accepted.
func (w *Overrides) KeyRevoked(record published.KeyRecord) {
	w.enqueue(queuedOverride{Override: keystate.Override{Ref: newKeyRef(record), Order: record.Order()}})
}

// KeyEnded writes that no digest of the key is accepted, whatever was ever published of it: the operator published it before the time in
// the tombstone, and a replica by the clock of Redis.
func (w *Overrides) KeyEnded(record published.KeyRecord, ended time.Time) {
	order := record.Order()
	order.Issued = max(order.Issued, ended.UnixMilli())
	w.enqueue(queuedOverride{Override: keystate.Override{Ref: newKeyRef(record), Order: order, Ended: true}})
}

// KeyUnverified has the record compared with what Redis knows of its key, soon, and written if Redis knows less.
func (w *Overrides) KeyUnverified(record published.KeyRecord) {
	order := record.Order()
	first := record.Generation == 1 && order.Issued == order.Revision
	w.verifier.add(unverified{newOverride(record), first})
}

// enqueue has an override written at once, unless its Redis server does not answer. While it does not, thousands of changes must not wait for one
// timeout each.
func (w *Overrides) enqueue(override queuedOverride) {
	w.verifier.remove(override.Ref, override.Order) // the record has replaced it; a restored one is added behind the change
	bucket := session.MerchantBucket(override.MerchantID)
	behind := w.behind(bucket)
	w.mu.Lock()
	queue := w.queues[bucket]
	if queue == nil {
		queue = &overrideQueue{newest: map[keystate.Ref]queuedOverride{}, revoking: map[keystate.Ref]bool{}}
		w.queues[bucket] = queue
	}
	queue.put(override)
	var written []func()
	if behind {
		written = queue.fail()
	}
	if queue.failed {
		written = append(written, queue.release(override.Ref)...)
		w.mu.Unlock()
		callAll(written)
		return
	}
	start := !queue.writing
	queue.writing = true
	w.mu.Unlock()
	if start {
		go w.drain(context.Background(), bucket, queue)
	}
}

// put keeps the newest override of a key. Whoever waited for an earlier one waits no more: the directory has replaced that record.
func (q *overrideQueue) put(override queuedOverride) {
	earlier, known := q.newest[override.Ref]
	order := override.Order.Compare(earlier.Order)
	switch {
	case !known, override.Ended && !earlier.Ended, !earlier.Ended && (order > 0 || (order == 0 && len(override.Accepted) == 0)):
	default:
		override.Override = earlier.Override
	}
	q.newest[override.Ref] = override
	delete(q.revoking, override.Ref)
	if len(override.Accepted) == 0 {
		q.revoking[override.Ref] = true
	}
}

// next returns some of the overrides, those that revoke a key first; refused ones only if they are asked for.
func (q *overrideQueue) next(most int, refused bool) (overrides []keystate.Override) {
	for key := range q.revoking {
		if len(overrides) == most {
			return overrides
		}
		if override := q.newest[key]; refused || !override.refused {
			overrides = append(overrides, override.Override)
		}
	}
	for key, override := range q.newest {
		if len(overrides) == most {
			return overrides
		}
		if !q.revoking[key] && (refused || !override.refused) {
			overrides = append(overrides, override.Override)
		}
	}
	return overrides
}

// finish removes what was written, unless the key has changed since, or keeps it as refused. It returns what to call.
func (q *overrideQueue) finish(tried keystate.Override, refused bool) (written []func()) {
	newest, known := q.newest[tried.Ref]
	if !known || newest.Order != tried.Order || newest.Ended != tried.Ended || len(newest.Accepted) != len(tried.Accepted) {
		return nil
	}
	if newest.written != nil {
		written = append(written, newest.written)
	}
	if refused {
		newest.refused, newest.written = true, nil
		q.newest[tried.Ref] = newest
		return written
	}
	delete(q.newest, tried.Ref)
	delete(q.revoking, tried.Ref)
	return written
}

// fail has the overrides retried at intervals. It returns what to call of all of them. Nobody waits for an override of a
// failed queue, so failing again does not walk through them.
func (q *overrideQueue) fail() (written []func()) {
	if q.failed {
		return nil
	}
	q.failed = true
	for key := range q.newest {
		written = append(written, q.release(key)...)
	}
	return written
}

// release returns what to call of the key's override, and forgets it.
func (q *overrideQueue) release(key keystate.Ref) (written []func()) {
	if override := q.newest[key]; override.written != nil {
		written = append(written, override.written)
		override.written = nil
		q.newest[key] = override
	}
	return written
}

func callAll(functions []func()) {
	for _, function := range functions {
		function()
	}
}

// behind reports whether overrides of the bucket's server wait to be retried.
func (w *Overrides) behind(bucket session.Bucket) bool {
	failed := w.buckets(func(queue *overrideQueue) bool { return queue.failed })
	if len(failed) == 0 || slices.Contains(failed, bucket) {
		return len(failed) > 0
	}
	return slices.ContainsFunc(w.servers.ByServer(context.Background(), append(failed, bucket)), func(group []session.Bucket) bool {
		return len(group) > 1 && slices.Contains(group, bucket)
	})
}

// drain writes the overrides of a bucket until there are none, or Redis fails.
func (w *Overrides) drain(ctx context.Context, bucket session.Bucket, queue *overrideQueue) {
	for {
		w.mu.Lock()
		overrides := queue.next(maxOverrideWrites, false)
		if len(overrides) == 0 || queue.failed {
			queue.writing = false
			w.removeEmpty(bucket)
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		var writes sync.WaitGroup
		for _, override := range overrides {
			writes.Go(func() { _ = w.writeQueued(ctx, queue, override) })
		}
		writes.Wait()
	}
}

// writeQueued writes an override of a queue. It returns an error only if the Redis server serves nobody.
func (w *Overrides) writeQueued(ctx context.Context, queue *overrideQueue, override keystate.Override) error {
	err := w.tryWrite(ctx, override)
	w.mu.Lock()
	var written []func()
	if redis.ServesNobody(err) {
		written = queue.fail()
	} else {
		written, err = queue.finish(override, err != nil), nil
	}
	w.mu.Unlock()
	callAll(written)
	return err
}

// removeEmpty removes the queue of a bucket that has no override left. It expects the lock.
func (w *Overrides) removeEmpty(bucket session.Bucket) {
	if queue := w.queues[bucket]; queue != nil && !queue.writing && len(queue.newest) == 0 {
		delete(w.queues, bucket)
	}
}

// tryWrite writes an override. With an error, which is redis.ErrUnavailable, try again.
func (w *Overrides) tryWrite(ctx context.Context, override keystate.Override) error {
	err := w.write(ctx, override)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, keystate.ErrNewerOverride):
		w.verifier.add(unverified{Override: override})
		return nil
	case errors.Is(err, redis.ErrUnavailable):
		return err
	}
	// The stored override cannot be read, so requests with this key get 503 until it is removed.
	w.log.Error("could not write the override of a key", "keyID", override.KeyID, "error", err)
	return nil
}

// Run writes and verifies what is pending until ctx ends. In two loops: verifying waits for the Kubernetes API, which must
// not delay the overrides.
func (w *Overrides) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { every(ctx, overrideRetryInterval, w.retry) })
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

// retry writes what Redis has not taken, for each Redis server until it fails again.
func (w *Overrides) retry(ctx context.Context) {
	waiting := w.buckets(func(queue *overrideQueue) bool { return queue.failed || !queue.writing })
	_ = w.servers.ForEach(ctx, waiting, func(ctx context.Context, bucket session.Bucket) error {
		w.mu.Lock()
		queue := w.queues[bucket]
		if queue == nil {
			w.mu.Unlock()
			return nil
		}
		overrides := queue.next(len(queue.newest), true)
		w.mu.Unlock()
		for _, override := range overrides {
			if err := w.writeQueued(ctx, queue, override); err != nil {
				return err
			}
		}
		w.mu.Lock()
		queue.failed = false
		start := !queue.writing && len(queue.newest) > 0 // what has come meanwhile
		queue.writing = queue.writing || start
		w.removeEmpty(bucket)
		w.mu.Unlock()
		if start {
			w.drain(ctx, bucket, queue)
		}
		return nil
	})
}

// buckets returns those whose queue is as described.
func (w *Overrides) buckets(is func(*overrideQueue) bool) (buckets []session.Bucket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for bucket, queue := range w.queues {
		if is(queue) {
			buckets = append(buckets, bucket)
		}
	}
	return buckets
}

// newOverride returns the override for replicas that have not seen the record yet. It has every digest with its end: the clock of Redis decides
// about these, not that of this replica, which would decide for all others.
func newOverride(record published.KeyRecord) keystate.Override {
	override := keystate.Override{Ref: newKeyRef(record), Order: record.Order()}
	for _, accepted := range record.Accepted() {
		override.Accepted = append(override.Accepted, keystate.Accepted(accepted))
	}
	return override
}

func newKeyRef(record published.KeyRecord) keystate.Ref {
	return keystate.Ref{MerchantID: record.MerchantID, KeyID: record.KeyID}
}
