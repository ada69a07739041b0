package status

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// sharedConfig is of the one API server; each test has a namespace of its own.
var sharedConfig *rest.Config

func TestMain(m *testing.M) {
	kubetest.Main(m, func(c *kubetest.Cluster) error {
		sharedConfig = c.Environment.Config
		return nil
	})
}

// testFixture is what a Reporter needs.
type testFixture struct {
	*dispatchertest.Fixture

	reports *dispatchertest.Reports[Report]
}

func newFixture(t *testing.T) testFixture {
	t.Helper()
	return testFixture{dispatchertest.New(t), &dispatchertest.Reports[Report]{}}
}

// reporter returns one that does not run yet.
func (f testFixture) reporter() *Reporter {
	return New(Options{
		Outbox: f.Outbox, Store: f.Store, Index: f.Index, Writer: f.reports, Changes: NewChanges(), HealthChanged: loop.NewSignal(),
		LastUseInterval: time.Minute, Log: loop.NewLog(slog.New(slog.NewTextHandler(f.Log, nil))), Registerer: prometheus.NewRegistry(), Now: time.Now,
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

// awaitReports waits until the reports have these reasons, without those of changed counts.
func (f testFixture) awaitReports(t *testing.T, want ...string) {
	t.Helper()
	dispatchertest.Eventually(t, "the reports are made", func() bool { return slices.Equal(reasons(f.reports.All()), want) })
}

func reasons(reports []Report) []string {
	var reasons []string
	for i, report := range reports {
		if i > 0 && report.Reason == reports[i-1].Reason && report.State.CountsChanged() {
			continue
		}
		reasons = append(reasons, report.Reason)
	}
	return reasons
}

// made returns the last report, which must be of that reason.
func (f testFixture) made(t *testing.T, reason string) Report {
	t.Helper()
	var last Report
	dispatchertest.Eventually(t, "the health is "+reason, func() bool {
		if all := f.reports.All(); len(all) > 0 {
			last = all[len(all)-1]
		}
		return last.Reason == reason
	})
	return last
}
