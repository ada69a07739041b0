package attempt

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// testFixture is a Redis of its own, and merchants with endpoints.
type testFixture struct{ *dispatchertest.Fixture }

// worker returns one whose attempts go over the network.
func (f testFixture) worker(t *testing.T) *Worker {
	t.Helper()
	return &Worker{
		Outbox: f.Outbox, Sender: dispatchertest.NewSender(t), Index: f.Index, Next: func(failed int, _ time.Duration, _ float64) (time.Duration, bool) {
			return 10 * time.Millisecond, failed < 4
		},
		FailingLimit: time.Hour, HealthChanged: loop.NewSignal(), Metrics: NewMetrics(prometheus.NewRegistry()), Now: time.Now, Log: loop.NewLog(slog.New(slog.NewTextHandler(f.Log, nil))),
	}
}

// keeper is a holder that loses no lease.
type keeper struct{}

func (keeper) Await(context.Context, string, time.Time) bool { return true }
func (keeper) Valid(string) bool                             { return true }

// start attempts the events of the bucket, one after the other, until stop is called or the test ends.
func (f testFixture) start(t *testing.T, w *Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for loop.Pause(ctx, 5*time.Millisecond) {
			now := w.Now()
			leased, err := f.Outbox.Lease(ctx, 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			for _, lease := range leased.Leases {
				decided, endpoint := w.Decide(lease, leased.Now)
				j := Job{Lease: lease, Holder: keeper{}, Endpoint: endpoint, Asked: now, RedisNow: leased.Now, LeaseEnd: now.Add(time.Hour)}
				if decided.Action == Defer {
					w.Defer(ctx, 0, decided.Reason, j)
					continue
				}
				w.Attempt(ctx, j)
			}
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}
