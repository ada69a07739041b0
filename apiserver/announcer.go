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
	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

// announcer writes what this replica's watch brings as overrides, so that a replica which is cut off
// from the Kubernetes API learns of rotations and revocations from its peers. It writes at once, and
// what it cannot write because Redis is away it writes later: until Redis is back, no request is
// answered anyway.
type announcer struct {
	write func(context.Context, store.Override) error
	now   func() time.Time
	log   *slog.Logger

	mu      sync.Mutex
	pending map[store.KeyRef]store.Override // the newest of each key
}

// announceRetry is between two tries to write what is pending.
const announceRetry = time.Second

func newAnnouncer(redis *store.Store, log *slog.Logger, registerer prometheus.Registerer) *announcer {
	a := &announcer{write: redis.WriteOverride, now: time.Now, log: log, pending: map[store.KeyRef]store.Override{}}
	promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "merchant_operator_directory_unannounced_keys",
		Help: "Keys whose news this replica could not write to Redis yet.",
	}, func() float64 {
		a.mu.Lock()
		defer a.mu.Unlock()
		return float64(len(a.pending))
	})
	return a
}

// Announce writes what the record accepts.
func (a *announcer) Announce(record published.KeyRecord) { a.tell(overrideOf(record, a.now())) }

// Revoke writes that no digest of the key is accepted.
func (a *announcer) Revoke(record published.KeyRecord) {
	a.tell(store.Override{KeyRef: refOf(record), Order: record.Order()})
}

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
	a.pending[override.KeyRef] = override
}

// try writes an override and reports whether to try again.
func (a *announcer) try(ctx context.Context, override store.Override) (again bool) {
	err := a.write(ctx, override)
	switch {
	case err == nil || errors.Is(err, store.ErrNewerOverride):
		return false
	case errors.Is(err, store.ErrUnavailable):
		return true
	}
	// What is there already cannot be read, so no request with this key is answered until it is removed.
	a.log.Error("could not write an override", "keyID", override.KeyID, "error", err)
	return false
}

// run writes what is pending until ctx ends.
func (a *announcer) run(ctx context.Context) {
	ticker := time.NewTicker(announceRetry)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.catchUp(ctx)
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
