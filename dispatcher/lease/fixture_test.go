package lease

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/dispatcher/attempt"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/holder"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/dispatcher/queue"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const jobsPerAttempt = 16

// testFixture is a Redis of its own, and merchants with endpoints.
type testFixture struct{ *dispatchertest.Fixture }

// newFixture also returns a receiver that answers 200, and its merchant, which is in bucket 7 and did not ask for session.created.
func newFixture(t *testing.T) (f testFixture, shop *dispatchertest.Receiver, acme endpoints.Endpoint) {
	t.Helper()
	f = testFixture{dispatchertest.New(t)}
	shop, acme = f.Shop(t, dispatchertest.Always(http.StatusOK))
	return f, shop, acme
}

// testLeaser is a Leaser with the rooms that follow.
type testLeaser struct {
	*Leaser

	queues   *queue.Queues
	registry *prometheus.Registry
	clock    func() time.Time // nil: the real one
}

// leaser returns one whose attempts go to the sender.
func (f testFixture) leaser(sender attempt.Sender) *testLeaser {
	d := &testLeaser{registry: prometheus.NewRegistry()}
	now := func() time.Time {
		if d.clock == nil {
			return time.Now()
		}
		return d.clock()
	}
	log := loop.NewLog(slog.New(slog.NewTextHandler(f.Log, nil)))
	worker := &attempt.Worker{
		Outbox: f.Outbox, Sender: sender, Index: f.Index, Next: func(int, time.Duration, float64) (time.Duration, bool) { return 5 * time.Second, true }, FailingLimit: time.Hour, HealthChanged: loop.NewSignal(),
		Metrics: attempt.NewMetrics(d.registry), Now: now, Log: log,
	}
	d.queues = queue.New(worker, queue.Limits{Concurrency: 8, MaxInFlight: 512, JobsPerAttempt: jobsPerAttempt}, now)
	d.Leaser = &Leaser{
		Outbox: f.Outbox, Holders: holder.New(f.Outbox, "test", log, now), Worker: worker, Queues: d.queues, Duration: 30 * time.Second, Leased: func() {}, Now: now, Log: log,
	}
	return d
}

// metric returns the value of a counter.
func (d *testLeaser) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return dispatchertest.Metric(t, d.registry, name, labels...)
}

// awaitDeferred waits until so many deferrals are counted.
func (d *testLeaser) awaitDeferred(t *testing.T, reason string, events float64) {
	t.Helper()
	dispatchertest.Eventually(t, "events are deferred: "+reason, func() bool { return d.metric(t, "webhook_deferrals_total", reason) >= events })
}

// start delivers the events of bucket 7 over the network until the test ends.
func (f testFixture) start(t *testing.T) *testLeaser {
	t.Helper()
	d := f.leaser(dispatchertest.NewSender(t))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for loop.Pause(ctx, 5*time.Millisecond) {
			if _, err := d.Deliver(ctx, 7); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		d.queues.Close(ctx)
		d.queues.Wait(dispatchertest.Patience)
	})
	return d
}
