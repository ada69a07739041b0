package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/dispatcher/status"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

func TestMain(m *testing.M) { dispatchertest.Main(m) }

// testFixture is a Redis of its own, merchants with endpoints, and any number of dispatchers.
type testFixture struct {
	*dispatchertest.Fixture

	reports *dispatchertest.Reports[status.Report]
}

func newFixture(t *testing.T) testFixture {
	t.Helper()
	return testFixture{dispatchertest.New(t), dispatchertest.NewReports(func(r status.Report) (string, outbox.EndpointState) { return r.Reason, r.State })}
}

// testDispatcher is a dispatcher, and the reporter beside it.
type testDispatcher struct {
	*dispatcher

	reporter *status.Reporter
	changes  *status.Changes
	registry *prometheus.Registry
}

// dispatcher returns one that does not run yet.
func (f testFixture) dispatcher(t *testing.T, change ...func(*Options)) *testDispatcher {
	t.Helper()
	options := DefaultOptions()
	options.Schedule = Schedule{0, 10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond}
	options.ShutdownTimeout = dispatchertest.Patience
	options.Log = slog.New(slog.NewTextHandler(f.Log, nil))
	for _, c := range change {
		c(&options)
	}
	client := dispatchertest.NewSender(t)
	registry, changes := prometheus.NewRegistry(), status.NewChanges()
	d := newDispatcher(options, f.Client, f.Store, client, f.Index, nil, newRotations(), registry, "test")
	reporter := status.New(status.Options{
		Outbox: f.Outbox, Keys: f.Keys, Redis: f.Client, Blocked: f.Blocked, Index: f.Index, Writer: f.reports, Refusal: client.Refusal, Changes: changes, HealthChanged: d.worker.HealthChanged, HealthInterval: pollInterval,
		PublishUsesInterval: options.PublishUsesInterval, LastUseStep: options.LastUseStep, Log: d.log, Registerer: registry, Now: time.Now,
	})
	return &testDispatcher{d, reporter, changes, registry}
}

// metric returns the value of a counter or gauge.
func (d *testDispatcher) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return dispatchertest.Metric(t, d.registry, name, labels...)
}

// start runs a dispatcher until stop is called, which returns what run returned, or the test ends.
func start(t *testing.T, d *testDispatcher) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var reporting sync.WaitGroup
	reporting.Go(func() { d.reporter.Run(ctx) })
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		reporting.Wait()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}
