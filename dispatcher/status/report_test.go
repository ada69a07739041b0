package status

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// etcd must not pay for traffic: ten thousand deliveries of twenty merchants are twenty reports, with
// another one for each that had events waiting, and twenty more after ten minutes.
func TestReportHealth_WritesDoNotGrowWithTraffic(t *testing.T) {
	f := newFixture(t)
	const merchants, events = 20, 500
	all := make([]endpoints.Endpoint, merchants)
	for i := range all {
		all[i] = f.EndpointAt("https://shop.example/", session.Bucket(i%4))
	}
	start(t, f.reporter())
	var working sync.WaitGroup
	for _, endpoint := range all {
		working.Go(func() {
			for range events {
				f.Event(t, endpoint.MerchantID)
			}
		})
	}
	for bucket := range session.Bucket(4) {
		working.Go(func() { f.deliver(t, bucket, merchants/4*events) })
	}
	working.Wait()
	f.AwaitUnwatched(t)
	first := len(f.reports.All())
	if first < merchants || first > 2*merchants {
		t.Errorf("%d reports of %d deliveries, want %d, and one more of each of which events were waiting", first, merchants*events, merchants)
	}
	again := f.reporter() // not running, so that the test says when
	refresh := func() {
		for range session.Buckets {
			if _, err := again.refreshHealth(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	refresh()
	if n := len(f.reports.All()); n != first {
		t.Errorf("%d reports before ten minutes are over, want %d", n, first)
	}
	for _, endpoint := range all {
		f.SetBack(t, endpoint, "reported_at", refreshAge)
	}
	refresh()
	refresh()
	if n := len(f.reports.All()); n != first+merchants {
		t.Errorf("%d reports after ten minutes, want %d", n, first+merchants)
	}
	for _, endpoint := range all {
		f.SetBack(t, endpoint, "delivered", 2*refreshAge)
		f.SetBack(t, endpoint, "reported_at", refreshAge)
	}
	refresh()
	if n := len(f.reports.All()); n != first+merchants {
		t.Errorf("%d reports without a delivery, want %d", n, first+merchants)
	}
}

// deliver delivers this many events of a bucket, some at a time.
func (f testFixture) deliver(t *testing.T, bucket session.Bucket, events int) {
	t.Helper()
	await.Until(t, 4*dispatchertest.Patience, "all is delivered", func() bool {
		leased, err := f.Outbox.Lease(t.Context(), bucket, outbox.LeaseRequest{For: time.Hour, Limit: 64})
		for _, lease := range leased.Leases {
			err = errors.Join(err, f.Outbox.RecordDelivery(t.Context(), lease, f.Index.Endpoint(lease.Event.MerchantID).Noted(0)))
		}
		if err != nil {
			t.Error(err)
		}
		events -= len(leased.Leases)
		return events == 0 || err != nil
	})
}

// An endpoint that alternates between 200 and 404 uses up its own budget only.
func TestReportHealth_AlternatingEndpoint(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("https://shop.example/", 7)
	r := f.reporter()
	for n := range 3 * outbox.ReportBurst {
		f.Event(t, acme.MerchantID)
		if lease := f.lease(t, 7); n%2 == 0 {
			dispatchertest.Must(t, f.Outbox.RecordDelivery(t.Context(), lease, acme.Noted(0)))
		} else {
			dispatchertest.Must(t, dispatchertest.Second(f.Outbox.RecordFailure(t.Context(), lease, outbox.Failure{
				Details: outbox.Details{Reason: "status_4xx", Answer: "404"}, Retry: -1, Target: acme.Noted(0), FailingLimit: time.Hour,
				Health: reasonRejected, Permanent: true,
			})))
		}
		if _, err := r.reportHealth(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.reports.All()); n != outbox.ReportBurst {
		t.Errorf("%d reports, want %d", n, outbox.ReportBurst)
	}
}

// Whatever fails at once, one round of one dispatcher makes a bounded number of reports, and the next ones the rest.
func TestReportHealth_BudgetOfARound(t *testing.T) {
	f := newFixture(t)
	const merchants = 2*changesPerRound + 5
	r := f.reporter()
	for range merchants {
		f.Disable(t, f.EndpointAt("https://shop.example/", 7))
	}
	for round, want := range []int{changesPerRound, 2 * changesPerRound, merchants, merchants} {
		if _, err := r.reportHealth(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(f.reports.All()); n != want {
			t.Errorf("%d reports after round %d, want %d", n, round+1, want)
		}
	}
}

// Counts that changed without a delivery are refreshed too.
func TestRefreshHealth_Counts(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("http://127.0.0.1:1", 7)
	id := f.Event(t, acme.MerchantID)
	leased, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
	dispatchertest.Must(t, err)
	_, err = f.Outbox.RecordFailure(t.Context(), leased.Leases[0], outbox.Failure{
		Details: outbox.Details{Reason: "timeout"}, Retry: -1, Target: acme.Noted(0), FailingLimit: time.Hour, Health: reasonTimeout,
	})
	dispatchertest.Must(t, err)
	r := f.reporter()
	if _, err := r.reportHealth(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first := f.reports.AwaitLast(t, "Retrying"); first.State.Pending != 0 || first.State.Dead != 1 {
		t.Errorf("at first: %+v", first.State)
	}
	if resent, err := f.Outbox.Resend(t.Context(), outbox.ResendRequest{IDs: []string{id}}); err != nil || resent.Sent != 1 {
		t.Fatalf("sent %+v again: %v", resent, err)
	}
	f.SetBack(t, acme, "reported_at", refreshAge)
	f.SetBack(t, acme, "failed", refreshAge)
	r.nextRefresh = 7
	if _, err := r.refreshHealth(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := f.reports.All()
	if last := all[len(all)-1]; len(all) != 2 || last.State.Pending != 1 || last.State.Dead != 0 || last.EventType != "" {
		t.Errorf("%d reports, the last is %+v", len(all), last.State)
	}
}

// A person who read that events wait also reads that they were delivered.
func TestReportHealth_PendingEventsDelivered(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("https://shop.example/", 7)
	r := f.reporter()
	lease := func() outbox.Lease {
		leased, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
		dispatchertest.Must(t, err)
		return leased.Leases[0]
	}
	report := func(reports int, pending int64) {
		t.Helper()
		for range 2 { // the second time there is nothing more to report
			dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
		}
		all := f.reports.All()
		if len(all) != reports || all[len(all)-1].State.Pending != pending {
			t.Fatalf("%d reports, the last is %+v", len(all), all[len(all)-1].State)
		}
	}
	f.Event(t, acme.MerchantID)
	f.Event(t, acme.MerchantID)
	dispatchertest.Must(t, f.Outbox.RecordDelivery(t.Context(), lease(), acme.Noted(0)))
	report(1, 1)
	dispatchertest.Must(t, f.Outbox.RecordDelivery(t.Context(), lease(), acme.Noted(0)))
	report(2, 0)
	f.Event(t, acme.MerchantID)
	report(2, 0) // the endpoint is healthy: then it is delivered
	dispatchertest.Must(t, dispatchertest.Second(f.Outbox.RecordFailure(t.Context(), lease(), outbox.Failure{
		Details: outbox.Details{Reason: "timeout"}, Retry: time.Hour, Target: acme.Noted(0), FailingLimit: time.Hour, Health: reasonTimeout,
	})))
	report(3, 1)
}

// A refresh that finds events waiting is corrected as soon as they are delivered.
func TestRefreshHealth_PendingEventsDelivered(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("https://shop.example/", 7)
	r := f.reporter()
	deliver := func() {
		leased, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
		dispatchertest.Must(t, err)
		dispatchertest.Must(t, f.Outbox.RecordDelivery(t.Context(), leased.Leases[0], acme.Noted(0)))
	}
	f.Event(t, acme.MerchantID)
	deliver()
	dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	f.Event(t, acme.MerchantID)
	f.Event(t, acme.MerchantID)
	deliver()
	f.SetBack(t, acme, "reported_at", refreshAge)
	r.nextRefresh = 7
	dispatchertest.Must(t, dispatchertest.Second(r.refreshHealth(t.Context())))
	deliver()
	dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	var pending []int64
	for _, report := range f.reports.All() {
		pending = append(pending, report.State.Pending)
	}
	if !slices.Equal(pending, []int64{0, 1, 0}) {
		t.Errorf("reported as pending: %v", pending)
	}
	f.AwaitUnwatched(t)
}

// Merchants whose counts change all the time leave room for those whose endpoint breaks.
func TestReportHealth_CountsLeaveRoomForHealth(t *testing.T) {
	f := newFixture(t)
	r := f.reporter()
	const flapping = 3 * changesPerRound
	for range flapping { // reported as healthy, then with a dead letter
		endpoint := f.EndpointAt("https://shop.example/", 7)
		f.Event(t, endpoint.MerchantID)
		leased, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
		dispatchertest.Must(t, err)
		dispatchertest.Must(t, f.Outbox.RecordDelivery(t.Context(), leased.Leases[0], endpoint.Noted(0)))
		found, err := f.Outbox.Endpoints(t.Context(), 7, endpoint.MerchantID)
		dispatchertest.Must(t, err)
		dispatchertest.Must(t, f.Outbox.RecordEndpointReport(t.Context(), found.States[0], reasonHealthy, true))
		f.Event(t, endpoint.MerchantID)
		leased, err = f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
		dispatchertest.Must(t, err)
		dispatchertest.Must(t, dispatchertest.Second(f.Outbox.RecordFailure(t.Context(), leased.Leases[0], outbox.Failure{
			Details: outbox.Details{Reason: "timeout"}, Retry: -1, Target: endpoint.Noted(0), FailingLimit: time.Hour, Health: reasonTimeout,
		})))
	}
	broken := f.EndpointAt("https://shop.example/", 7)
	f.Disable(t, broken)
	dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	if n := len(f.reports.All()); n != countsPerRound+1 || f.State(t, broken).Reported.Reason != reasonEndpointGone {
		t.Errorf("%d reports, of the broken endpoint %q", n, f.State(t, broken).Reported.Reason)
	}
	for range flapping/countsPerRound - 1 {
		dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	}
	if n := len(f.reports.All()); n != flapping+1 {
		t.Errorf("%d reports in the end, want %d", n, flapping+1)
	}
}

// A report that one dispatcher fails to make is made by another one, and by no other again.
func TestReportHealth_Failed(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("http://127.0.0.1:1", 7)
	f.Disable(t, acme)
	first, second := f.reporter(), f.reporter()
	report := func(r *Reporter) { dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context()))) }
	f.reports.SetFail(errors.New("the Kubernetes API is away"))
	report(first)
	f.reports.SetFail(nil)
	report(second)
	report(first)
	f.reports.AwaitReasons(t, "EndpointGone")
	f.Moved(acme, "resumed")
	report(first) // resumes
	report(second)
	report(first)
	f.reports.AwaitReasons(t, "EndpointGone", "EndpointChanged")
}

// Merchants whose status cannot be written, of a tenant who has seen to that, take no more than their turn from others.
func TestReportHealth_FailingLeaveRoomForOthers(t *testing.T) {
	f := newFixture(t)
	r := f.reporter()
	for range changesPerRound {
		large := f.EndpointAt("https://shop.example/", 7)
		f.Disable(t, large)
		f.reports.SetFailFor(large, errors.New("etcdserver: request is too large"))
	}
	f.Disable(t, f.EndpointAt("https://shop.example/", 7))
	f.block(t, f.guarded(9, "203.0.113.0/24").MerchantID, "198.51.100.0/24")
	for range 3 {
		dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	}
	if health, lists := len(f.reports.All()), len(f.reports.Allowlists()); health != 1 || lists != 1 {
		t.Errorf("%d reports of health and %d of blocked addresses, want one of each", health, lists)
	}
}

// slowWriter is a Writer in front of a slow webhook in one namespace. It has a clock of the test.
type slowWriter struct {
	Writer
	slowWebhook

	namespace string
	clock     time.Time
	slow      int // writes
}

func (w *slowWriter) write(endpoint endpoints.Endpoint) error {
	if endpoint.Merchant.Namespace != w.namespace {
		return nil
	}
	w.slow++
	w.clock = w.clock.Add(w.took)
	return w.err
}

// total is how long the slow writes took together.
func (w *slowWriter) total() time.Duration { return time.Duration(w.slow) * w.took }

// slowWebhook is an admission webhook that takes so long and then fails, unless err is nil.
type slowWebhook struct {
	took time.Duration
	err  error
}

var slowWebhooks = map[string]slowWebhook{
	"that answers nothing":         {reportTimeout, context.DeadlineExceeded},
	"that takes almost a second":   {990 * time.Millisecond, nil},
	"that takes a tenth of second": {100 * time.Millisecond, nil},
}

func (w *slowWriter) Report(ctx context.Context, endpoint endpoints.Endpoint, report Report) error {
	if err := w.write(endpoint); err != nil {
		return err
	}
	return w.Writer.Report(ctx, endpoint, report)
}

func (w *slowWriter) ReportTest(ctx context.Context, endpoint endpoints.Endpoint) error {
	if err := w.write(endpoint); err != nil {
		return err
	}
	return w.Writer.ReportTest(ctx, endpoint)
}

func (w *slowWriter) ReportAllowlist(ctx context.Context, endpoint endpoints.Endpoint, refused *v1alpha1.AllowlistStatus) error {
	if err := w.write(endpoint); err != nil {
		return err
	}
	return w.Writer.ReportAllowlist(ctx, endpoint, refused)
}

// newSlowFixture has a Reporter, and many Merchants in a namespace with a slow webhook.
func newSlowFixture(t *testing.T, webhook slowWebhook) (f testFixture, r *Reporter, slow *slowWriter, attackers []endpoints.Endpoint) {
	t.Helper()
	f = newFixture(t)
	r = f.reporter()
	slow = &slowWriter{Writer: r.writer, slowWebhook: webhook, namespace: "slow", clock: time.Now()}
	r.writer, r.now = slow, func() time.Time { return slow.clock }
	for range 3 * changesPerRound {
		attacker := f.EndpointAt("https://shop.example/", 7)
		attacker.Merchant.Namespace, attacker.TestTrigger = slow.namespace, "1"
		f.Index.Put(attacker)
		attackers = append(attackers, attacker)
	}
	return f, r, slow, attackers
}

// A Kubernetes API that did not answer once, say because etcd chose a leader, costs the namespace
// whose report met it no rest: the next change is reported in the next round.
func TestReportHealth_StalledOnce(t *testing.T) {
	f := newFixture(t)
	r := f.reporter()
	slow := &slowWriter{Writer: r.writer, slowWebhook: slowWebhooks["that answers nothing"], namespace: "shops", clock: time.Now()}
	r.writer, r.now = slow, func() time.Time { return slow.clock }
	coffee := f.EndpointAt("https://shop.example/", 7)
	coffee.Merchant.Namespace = slow.namespace
	f.Index.Put(coffee)
	f.Disable(t, coffee)
	dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	if slow.slow != 1 || len(f.reports.All()) != 0 {
		t.Fatalf("%d slow reports, and %d that arrived", slow.slow, len(f.reports.All()))
	}
	slow.slowWebhook = slowWebhook{}
	slow.clock = slow.clock.Add(r.healthInterval)
	dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	if len(f.reports.All()) != 1 {
		t.Error("the next round reports nothing")
	}
}

// A slow admission webhook in one namespace delays a report to another by no more than two writes
// that time out, and takes a thirtieth of the time of all reports.
func TestReportHealth_SlowNamespace(t *testing.T) {
	for name, webhook := range slowWebhooks {
		t.Run(name, func(t *testing.T) { testReportHealthBeside(t, webhook) })
	}
}

func testReportHealthBeside(t *testing.T, webhook slowWebhook) {
	t.Helper()
	f, r, slow, attackers := newSlowFixture(t, webhook)
	for _, attacker := range attackers {
		f.Disable(t, attacker)
	}
	f.Disable(t, f.EndpointAt("https://shop.example/", 7))
	f.block(t, f.guarded(9, "203.0.113.0/24").MerchantID, "198.51.100.0/24")
	dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	health, lists := len(f.reports.All()), len(f.reports.Allowlists())
	if webhook.err == nil {
		health -= slow.slow // of the attackers
	}
	if took := slow.total(); health != 1 || lists != 1 || took > 2*reportTimeout {
		t.Errorf("%d reports of health and %d of blocked addresses in the first round, want one of each; the slow ones took %s", health, lists, took)
	}
	const rounds, interval = 500, 4 * time.Second
	began := slow.clock
	for range rounds {
		slow.clock = slow.clock.Add(interval)
		dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	}
	if took := slow.total(); took > slow.clock.Sub(began)/restFactor+2*reportTimeout {
		t.Errorf("%s of %s went into slow writes", took, slow.clock.Sub(began))
	}
	if slow.slow < 3 {
		t.Errorf("%d slow writes: a namespace whose webhook has recovered is reported to in %s at the latest", slow.slow, maxCost)
	}
}

// The same for what is done about a change.
func TestHandleChanges_SlowNamespace(t *testing.T) {
	for name, webhook := range slowWebhooks {
		t.Run(name, func(t *testing.T) { testHandleChangesBeside(t, webhook) })
	}
}

func testHandleChangesBeside(t *testing.T, webhook slowWebhook) {
	t.Helper()
	f, r, slow, attackers := newSlowFixture(t, webhook)
	for _, attacker := range attackers {
		r.changes.Add(attacker.MerchantID)
	}
	victim := f.EndpointAt("https://shop.example/", 7)
	victim.TestTrigger = "2"
	f.Index.Put(victim)
	r.changes.Add(victim.MerchantID)
	_, _ = r.handleChanges(t.Context()) // the slow ones fail
	if tests := f.reports.Triggers(); !slices.Contains(tests, victim.TestTrigger) || slow.total() > 2*reportTimeout {
		t.Errorf("tests %v are reported, after %s of slow writes", tests, slow.total())
	}
}

// A dispatcher whose watch is frozen knows a former webhook: it neither enables nor forgets the one that others have found out to be gone.
func TestReportHealth_FrozenWatch(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("https://shop.example/", 7)
	f.Disable(t, acme)
	r := f.reporter()
	for name, former := range map[string]endpoints.Endpoint{
		"another target": f.Moved(acme, "former"),
		"none": func() endpoints.Endpoint {
			none := acme
			none.URL, none.Target = "", ""
			return none
		}(),
	} {
		f.Index.Put(former)
		f.Index.SetAge(endpoints.MaxAge + time.Second)
		dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
		if state := f.State(t, acme); !state.Disabled() || state.Target != acme.Target {
			t.Errorf("%s: the endpoint is %+v", name, state)
		}
	}
	f.Moved(acme, "new")
	f.Index.SetAge(0)
	dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	if state := f.State(t, acme); state.Disabled() || state.Target != "new" {
		t.Errorf("with a watch, the endpoint is %+v", state)
	}
}

// A dispatcher whose watch is late changes nothing about the target that another one has noted.
func TestReportHealth_LateWatch(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("https://shop.example/", 7)
	acme.Generation = 2
	f.Disable(t, acme)
	former := acme
	former.Target, former.Generation = "former", 1
	f.Index.Put(former)
	r := f.reporter()
	dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	if state := f.State(t, acme); !state.Disabled() || state.Target != acme.Target || state.Reported.Reason != "" {
		t.Errorf("the endpoint is %+v", state)
	}
}

// Nothing is reported of a Merchant that is gone.
func TestReportHealth_MerchantGone(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("http://127.0.0.1:1", 7)
	f.Disable(t, acme)
	f.reports.SetFail(ErrMerchantGone)
	start(t, f.reporter())
	dispatchertest.Eventually(t, "that is done with", func() bool {
		return f.State(t, acme).Reported.Reason == "EndpointGone"
	})
}

// The state of a removed webhook is deleted.
func TestReportHealth_WebhookRemoved(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("http://127.0.0.1:1", 7)
	f.Disable(t, acme)
	start(t, f.reporter())
	f.reports.AwaitReasons(t, "EndpointGone")
	removed := acme
	removed.URL, removed.Target, removed.Secrets = "", "", nil
	f.Index.Put(removed)
	f.reports.AwaitReasons(t, "EndpointGone", "")
	dispatchertest.Eventually(t, "it is forgotten", func() bool { return f.State(t, acme).Target == "" })
}
