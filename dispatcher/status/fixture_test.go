package status

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

func TestMain(m *testing.M) { dispatchertest.Main(m) }

// testFixture is what a Reporter needs.
type testFixture struct {
	*dispatchertest.Fixture

	reports *dispatchertest.Reports[Report]
}

func newFixture(t *testing.T) testFixture {
	t.Helper()
	return testFixture{dispatchertest.New(t), dispatchertest.NewReports(func(r Report) (string, outbox.EndpointState) { return r.Reason, r.State })}
}

// reporter returns one that does not run yet.
func (f testFixture) reporter() *Reporter {
	return New(Options{
		Outbox: f.Outbox, Keys: f.Keys, Redis: f.Client, Blocked: f.Blocked, Index: f.Index, Writer: f.reports, Changes: NewChanges(),
		Refusal:       func(string) (delivery.Result, bool) { return delivery.Result{}, false },
		HealthChanged: loop.NewSignal(), HealthInterval: 200 * time.Millisecond,
		PublishUsesInterval: time.Minute, LastUseStep: published.LastUseStep, Log: loop.NewLog(slog.New(slog.NewTextHandler(f.Log, nil))), Registerer: prometheus.NewRegistry(), Now: time.Now,
	})
}

// start runs a Reporter until the test ends.
func start(t *testing.T, r *Reporter) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// lease leases the event of the bucket that is due first.
func (f testFixture) lease(t *testing.T, bucket session.Bucket) outbox.Lease {
	t.Helper()
	leased, err := f.Outbox.Lease(t.Context(), bucket, outbox.LeaseRequest{For: time.Hour, Limit: 1})
	if err != nil || len(leased.Leases) != 1 {
		t.Fatalf("leased %d events: %v", len(leased.Leases), err)
	}
	return leased.Leases[0]
}
