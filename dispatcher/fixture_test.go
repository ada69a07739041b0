package dispatcher

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/dispatcher/status"
	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
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
	client, err := delivery.New(delivery.Options{AllowHTTP: true, Rules: egress.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	dispatchertest.Must(t, err)
	t.Cleanup(client.Close)
	registry, changes := prometheus.NewRegistry(), status.NewChanges()
	d := newDispatcher(&deliverer{
		options: options, outbox: f.Outbox, sender: client, metrics: newMetrics(registry), now: options.Now,
		log: loop.NewLog(options.Log), healthChanged: loop.NewSignal(),
	}, f.Client, f.Store, f.Index, newRotations(), "test")
	reporter := status.New(status.Options{
		Outbox: f.Outbox, Keys: f.Keys, Redis: f.Client, Blocked: f.Blocked, Index: f.Index, Writer: f.reports, Refusal: client.Refusal, Changes: changes, HealthChanged: d.healthChanged, HealthInterval: pollInterval,
		PublishUsesInterval: options.PublishUsesInterval, LastUseStep: options.LastUseStep, Log: d.log, Registerer: registry, Now: time.Now,
	})
	return &testDispatcher{d, reporter, changes, registry}
}

// unhealthyEndpoints is the gauge of a reason.
func (d *testDispatcher) unhealthyEndpoints(t *testing.T, reason string) float64 {
	t.Helper()
	families, err := d.registry.Gather()
	dispatchertest.Must(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "merchant_operator_webhook_endpoints_unhealthy" && metric.GetLabel()[0].GetValue() == reason {
				return metric.GetGauge().GetValue()
			}
		}
	}
	return 0
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

// receiver is a merchant's endpoint, which marks what it could verify.
type receiver struct {
	*httptest.Server

	inbox *inbox.Inbox
}

// newReceiver answers with the status of answer, whose argument is the number of attempts before.
func newReceiver(t *testing.T, answer func(before int, r *http.Request) int) *receiver {
	t.Helper()
	var attempts atomic.Int32
	handler, err := inbox.New(inbox.Options{
		Secrets: []string{dispatchertest.SigningSecret.Reveal()}, AcceptUnverified: true, Log: io.Discard,
		Status: func(r *http.Request) int { return answer(int(attempts.Add(1))-1, r) },
	})
	dispatchertest.Must(t, err)
	r := &receiver{httptest.NewServer(handler), handler}
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func always(status int) func(int, *http.Request) int {
	return func(int, *http.Request) int { return status }
}

// after answers with the status once the test closes the channel, or the client has gone.
func after(closed <-chan struct{}, status int) func(int, *http.Request) int {
	return func(_ int, r *http.Request) int {
		select {
		case <-closed:
		case <-r.Context().Done():
		}
		return status
	}
}

// hanging answers only when the client has gone.
func hanging(_ int, r *http.Request) int {
	<-r.Context().Done()
	return http.StatusOK
}

// ids are those of the events, one for each attempt.
func (r *receiver) ids() []string {
	var ids []string
	for _, event := range r.inbox.Events() {
		for range event.Attempts {
			ids = append(ids, event.ID)
		}
	}
	return ids
}

// await returns the events once there have been so many attempts.
func (r *receiver) await(t *testing.T, attempts int) []inbox.Event {
	t.Helper()
	dispatchertest.Eventually(t, "the endpoint gets its attempts", func() bool { return len(r.ids()) >= attempts })
	return r.inbox.Events()
}
