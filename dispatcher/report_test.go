package dispatcher

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// accepting delivers whatever it is given.
type accepting struct{ n atomic.Int32 }

func (a *accepting) Send(context.Context, delivery.Request) delivery.Result {
	a.n.Add(1)
	return delivery.Result{Outcome: delivery.Delivered, Status: http.StatusOK, Reason: delivery.ReasonDelivered}
}

// etcd must not pay for traffic: ten thousand deliveries of twenty merchants are twenty reports, with
// another one for each that had events waiting, and twenty more after ten minutes.
func TestReportsDoNotGrowWithTraffic(t *testing.T) {
	f := newFixture(t)
	const merchants, events = 20, 500
	all := make([]endpoints.Endpoint, merchants)
	for i := range all {
		all[i] = f.endpointAt("https://shop.example/", session.Bucket(i%4))
	}
	d := f.dispatcher(t)
	sender := &accepting{}
	d.sender = sender
	start(t, d)
	var creating sync.WaitGroup
	for _, endpoint := range all {
		creating.Go(func() {
			for range events {
				f.event(t, endpoint.MerchantID)
			}
		})
	}
	creating.Wait()
	eventually(t, "all is delivered", func() bool { return sender.n.Load() == merchants*events })
	f.awaitUnwatched(t)
	first := len(f.reports.all())
	if first < merchants || first > 2*merchants {
		t.Errorf("%d reports of %d deliveries, want %d, and one more of each of which events were waiting", first, merchants*events, merchants)
	}
	again := f.dispatcher(t) // not running, so that the test says when
	again.prepare()
	refresh := func() {
		for range session.Buckets {
			if _, err := again.refreshHealth(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	refresh()
	if n := len(f.reports.all()); n != first {
		t.Errorf("%d reports before ten minutes are over, want %d", n, first)
	}
	for _, endpoint := range all {
		f.setBack(t, endpoint, "reported_at", refreshAge)
	}
	refresh()
	refresh()
	if n := len(f.reports.all()); n != first+merchants {
		t.Errorf("%d reports after ten minutes, want %d", n, first+merchants)
	}
	for _, endpoint := range all {
		f.setBack(t, endpoint, "delivered", 2*refreshAge)
		f.setBack(t, endpoint, "reported_at", refreshAge)
	}
	refresh()
	if n := len(f.reports.all()); n != first+merchants {
		t.Errorf("%d reports without a delivery, want %d", n, first+merchants)
	}
}

// An endpoint that alternates between 200 and 404 uses up its own budget only.
func TestAnAlternatingEndpointHasABudget(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, func(before int, _ *http.Request) int { return []int{http.StatusOK, http.StatusNotFound}[before%2] })
	acme := f.endpointAt(shop.URL, 7)
	d := f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0} })
	d.prepare()
	for range 3 * outbox.ReportBurst {
		f.event(t, acme.MerchantID)
		attempts := len(shop.ids())
		eventually(t, "the attempt is made", func() bool {
			if _, err := d.lease(t.Context(), 7); err != nil {
				t.Fatal(err)
			}
			return len(shop.ids()) > attempts
		})
		eventually(t, "its result is recorded", func() bool { return f.state(t, acme).Pending == 0 })
		if _, err := d.reportHealth(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.reports.all()); n != outbox.ReportBurst {
		t.Errorf("%d reports, want %d", n, outbox.ReportBurst)
	}
	d.queues.close(t.Context())
}

// Whatever fails at once, one round of one dispatcher makes a bounded number of reports, and the next ones the rest.
func TestReportsOfAllMerchantsHaveABudget(t *testing.T) {
	f := newFixture(t)
	const merchants = 2*changesPerRound + 5
	d := f.dispatcher(t)
	d.prepare()
	for range merchants {
		f.disable(t, f.endpointAt("https://shop.example/", 7))
	}
	for round, want := range []int{changesPerRound, 2 * changesPerRound, merchants, merchants} {
		if _, err := d.reportHealth(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(f.reports.all()); n != want {
			t.Errorf("%d reports after round %d, want %d", n, round+1, want)
		}
	}
}

// Counts that changed without a delivery are refreshed too.
func TestCountsAreRefreshed(t *testing.T) {
	f := newFixture(t)
	acme := f.endpointAt("http://127.0.0.1:1", 7)
	id := f.event(t, acme.MerchantID)
	leased, err := f.outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
	must(t, err)
	_, err = f.outbox.Failed(t.Context(), leased.Leases[0], outbox.Failure{
		Details: outbox.Details{Reason: "timeout"}, Retry: -1, Target: acme.Target, FailingLimit: time.Hour, Health: reasonTimeout,
	})
	must(t, err)
	d := f.dispatcher(t)
	d.prepare()
	if _, err := d.reportHealth(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first := f.made(t, "Retrying"); first.state.Pending != 0 || first.state.Dead != 1 {
		t.Errorf("at first: %+v", first.state)
	}
	if resent, err := f.outbox.Resend(t.Context(), outbox.ResendRequest{IDs: []string{id}}); err != nil || resent.Sent != 1 {
		t.Fatalf("sent %+v again: %v", resent, err)
	}
	f.setBack(t, acme, "reported_at", refreshAge)
	f.setBack(t, acme, "failed", refreshAge)
	d.nextRefresh = 7
	if _, err := d.refreshHealth(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := f.reports.all()
	if last := all[len(all)-1]; len(all) != 2 || last.state.Pending != 1 || last.state.Dead != 0 || last.eventType != "" {
		t.Errorf("%d reports, the last is %+v", len(all), last.state)
	}
}

// Dead letters that were sent again are not shown for another ten minutes, also of an endpoint that was healthy all the time.
func TestReportHealth_DeadLettersSentAgain(t *testing.T) {
	f := newFixture(t)
	var answer atomic.Int32
	answer.Store(http.StatusInternalServerError)
	shop := newReceiver(t, func(int, *http.Request) int { return int(answer.Load()) })
	acme := f.endpointAt(shop.URL, 7)
	start(t, f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0} }))
	id := f.event(t, acme.MerchantID)
	f.awaitCounts(t, "the dead letter is shown", 0, 1)
	answer.Store(http.StatusOK)
	f.event(t, acme.MerchantID)
	f.made(t, "Healthy")
	f.awaitUnwatched(t)
	if resent, err := f.outbox.Resend(t.Context(), outbox.ResendRequest{IDs: []string{id}}); err != nil || resent.Sent != 1 {
		t.Fatalf("sent %+v again: %v", resent, err)
	}
	f.awaitCounts(t, "no dead letter is shown", 0, 0)
	f.awaitUnwatched(t)
}

// Whoever read that events were waiting reads that they were delivered.
func TestReportHealth_PendingEventsDelivered(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := f.endpointAt(shop.URL, 7)
	d := f.dispatcher(t)
	d.prepare()
	lease := func() outbox.Lease {
		leased, err := f.outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
		must(t, err)
		return leased.Leases[0]
	}
	report := func(reports int, pending int64) {
		t.Helper()
		for range 2 { // the second time there is nothing more to report
			must(t, second(d.reportHealth(t.Context())))
		}
		all := f.reports.all()
		if len(all) != reports || all[len(all)-1].state.Pending != pending {
			t.Fatalf("%d reports, the last is %+v", len(all), all[len(all)-1].state)
		}
	}
	f.event(t, acme.MerchantID)
	f.event(t, acme.MerchantID)
	must(t, f.outbox.Delivered(t.Context(), lease(), acme.Target))
	report(1, 1)
	must(t, f.outbox.Delivered(t.Context(), lease(), acme.Target))
	report(2, 0)
	f.event(t, acme.MerchantID)
	report(2, 0) // the endpoint is healthy: a moment later it is delivered
	must(t, second(f.outbox.Failed(t.Context(), lease(), outbox.Failure{
		Details: outbox.Details{Reason: "timeout"}, Retry: time.Hour, Target: acme.Target, FailingLimit: time.Hour, Health: reasonTimeout,
	})))
	report(3, 1)
}

// A refresh that finds events waiting is corrected as soon as they are delivered.
func TestRefreshHealth_PendingEventsDelivered(t *testing.T) {
	f := newFixture(t)
	acme := f.endpointAt("https://shop.example/", 7)
	d := f.dispatcher(t)
	d.prepare()
	deliver := func() {
		leased, err := f.outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
		must(t, err)
		must(t, f.outbox.Delivered(t.Context(), leased.Leases[0], acme.Target))
	}
	f.event(t, acme.MerchantID)
	deliver()
	must(t, second(d.reportHealth(t.Context())))
	f.event(t, acme.MerchantID)
	f.event(t, acme.MerchantID)
	deliver()
	f.setBack(t, acme, "reported_at", refreshAge)
	d.nextRefresh = 7
	must(t, second(d.refreshHealth(t.Context())))
	deliver()
	must(t, second(d.reportHealth(t.Context())))
	var pending []int64
	for _, report := range f.reports.all() {
		pending = append(pending, report.state.Pending)
	}
	if !slices.Equal(pending, []int64{0, 1, 0}) {
		t.Errorf("reported as pending: %v", pending)
	}
	f.awaitUnwatched(t)
}

// Merchants whose counts change all the time leave room for those whose endpoint breaks.
func TestReportHealth_CountsLeaveRoomForHealth(t *testing.T) {
	f := newFixture(t)
	d := f.dispatcher(t)
	d.prepare()
	const flapping = 3 * changesPerRound
	for range flapping { // reported as healthy, then with a dead letter
		endpoint := f.endpointAt("https://shop.example/", 7)
		f.event(t, endpoint.MerchantID)
		leased, err := f.outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
		must(t, err)
		must(t, f.outbox.Delivered(t.Context(), leased.Leases[0], endpoint.Target))
		found, err := f.outbox.Endpoints(t.Context(), 7, endpoint.MerchantID)
		must(t, err)
		must(t, f.outbox.EndpointReported(t.Context(), found.States[0], reasonHealthy, true))
		f.event(t, endpoint.MerchantID)
		leased, err = f.outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
		must(t, err)
		must(t, second(f.outbox.Failed(t.Context(), leased.Leases[0], outbox.Failure{
			Details: outbox.Details{Reason: "timeout"}, Retry: -1, Target: endpoint.Target, FailingLimit: time.Hour, Health: reasonTimeout,
		})))
	}
	broken := f.endpointAt("https://shop.example/", 7)
	f.disable(t, broken)
	must(t, second(d.reportHealth(t.Context())))
	if n := len(f.reports.all()); n != countsPerRound+1 || f.state(t, broken).Reported.Reason != reasonEndpointGone {
		t.Errorf("%d reports, of the broken endpoint %q", n, f.state(t, broken).Reported.Reason)
	}
	for range flapping/countsPerRound - 1 {
		must(t, second(d.reportHealth(t.Context())))
	}
	if n := len(f.reports.all()); n != flapping+1 {
		t.Errorf("%d reports in the end, want %d", n, flapping+1)
	}
}

func (f fixture) awaitCounts(t *testing.T, what string, pending, dead int64) {
	t.Helper()
	eventually(t, what, func() bool {
		all := f.reports.all()
		return len(all) > 0 && all[len(all)-1].state.Pending == pending && all[len(all)-1].state.Dead == dead
	})
}

func (f fixture) awaitUnwatched(t *testing.T) {
	t.Helper()
	eventually(t, "nothing is to be reported", func() bool {
		pending, err := f.outbox.PendingWork(t.Context())
		return err == nil && !slices.ContainsFunc(pending, func(work outbox.PendingWork) bool { return work.Endpoints })
	})
}
