package apiserver

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
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// announcer writes what this replica's watch brings as overrides, so that a replica which is cut off
// from the Kubernetes API learns of rotations and revocations from its peers. It writes at once, and
// what it cannot write because Redis is away it writes later: until Redis is back, no request is
// answered anyway. Where Redis knows something newer than the watch brought, it has that checked.
type announcer struct {
	write func(context.Context, store.Override) error
	now   func() time.Time
	log   *slog.Logger
	checks

	mu      sync.Mutex
	pending map[store.KeyRef]store.Override // the newest of each key
}

// announceRetry is between two tries to write, or to check, what is pending.
const announceRetry = time.Second

// endMargin is how far the clocks of replicas and operator may differ for the end of an ApiKey to outrank everything that was
// ever published of it.
const endMargin = time.Minute

func newAnnouncer(redis *store.Store, keys publishedKeys, log *slog.Logger, registerer prometheus.Registerer) *announcer {
	a := &announcer{
		write: redis.WriteOverride, now: time.Now, log: log, checks: newChecks(redis, keys, log),
		pending: map[store.KeyRef]store.Override{},
	}
	factory := promauto.With(registerer)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "merchant_operator_directory_unannounced_keys",
		Help: "Keys whose news this replica could not write to Redis yet.",
	}, func() float64 {
		a.mu.Lock()
		defer a.mu.Unlock()
		return float64(len(a.pending))
	})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "merchant_operator_directory_unchecked_keys",
		Help: "Keys whose published record this replica has not compared with Redis yet.",
	}, func() float64 { return float64(a.checks.size()) })
	return a
}

// Announce writes what the record accepts.
func (a *announcer) Announce(record published.KeyRecord) { a.tell(overrideOf(record, a.now())) }

// Revoke writes that no digest of the key is accepted.
func (a *announcer) Revoke(record published.KeyRecord) {
	a.tell(store.Override{KeyRef: refOf(record), Order: record.Order()})
}

// End writes that no digest of the key is accepted, whatever was ever published of it.
func (a *announcer) End(record published.KeyRecord) {
	end := a.now().Add(endMargin).UnixMilli()
	a.tell(store.Override{KeyRef: refOf(record), Order: published.Order{Issued: end, Revision: end}})
}

// Check has the record compared with what Redis knows of its key, soon.
func (a *announcer) Check(record published.KeyRecord) { a.checks.add(refOf(record), record.Order()) }

// tell holds up the watch while Redis answers. While it does not, thousands of news must not wait
// for one time-out each.
func (a *announcer) tell(override store.Override) {
	a.mu.Lock()
	behind := len(a.pending) > 0
	a.mu.Unlock()
	if !behind && !a.try(context.Background(), override) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	earlier, known := a.pending[override.KeyRef]
	order := override.Order.Compare(earlier.Order)
	if !known || order > 0 || (order == 0 && len(override.Accepted) == 0) {
		a.pending[override.KeyRef] = override
	}
}

// try writes an override and reports whether to try again.
func (a *announcer) try(ctx context.Context, override store.Override) (again bool) {
	err := a.write(ctx, override)
	switch {
	case err == nil:
		a.checks.settled(override.KeyRef, override.Order)
		return false
	case errors.Is(err, store.ErrNewerOverride):
		a.checks.add(override.KeyRef, override.Order)
		return false
	case errors.Is(err, store.ErrUnavailable):
		return true
	}
	// What is there already cannot be read, so no request with this key is answered until it is removed.
	a.log.Error("could not write an override", "keyID", override.KeyID, "error", err)
	return false
}

// run writes and checks what is pending until ctx ends. Checks wait for the Kubernetes API, which must not hold up the news.
func (a *announcer) run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { every(ctx, announceRetry, a.catchUp) })
	loops.Go(func() { every(ctx, announceRetry, a.checks.perform) })
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

// catchUp writes what is pending until Redis fails again.
func (a *announcer) catchUp(ctx context.Context) {
	for _, override := range a.unwritten() {
		if a.try(ctx, override) {
			return
		}
		a.settle(override)
	}
}

func (a *announcer) unwritten() []store.Override {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.pending))
}

// settle forgets what was written, unless there has been newer news of the key meanwhile.
func (a *announcer) settle(written store.Override) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if newest := a.pending[written.KeyRef]; newest.Order == written.Order && len(newest.Accepted) == len(written.Accepted) {
		delete(a.pending, written.KeyRef)
	}
}

// overrideOf says what the record says, for replicas that have not seen it.
func overrideOf(record published.KeyRecord, now time.Time) store.Override {
	override := store.Override{KeyRef: refOf(record), Order: record.Order()}
	for _, accepted := range record.Accepts(now) {
		override.Accepted = append(override.Accepted, store.Accepted(accepted))
	}
	return override
}

func refOf(record published.KeyRecord) store.KeyRef {
	return store.KeyRef{MerchantID: record.MerchantID, KeyID: record.KeyID}
}
