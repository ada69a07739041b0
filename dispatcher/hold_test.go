package dispatcher

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// None of a merchant's 100,000 events can be sent, for a reason that is the merchant's. A few of them are looked at now and then, however
// many new ones come. Once the reason ends, they are delivered at once.
func TestHolds(t *testing.T) {
	for name, row := range map[string]struct {
		hold   func(*endpoints.Endpoint)
		reason string
	}{
		"unknown":       {func(e *endpoints.Endpoint) { *e = endpoints.Endpoint{MerchantID: e.MerchantID} }, deferredUnknown},
		"not decodable": {func(e *endpoints.Endpoint) { e.State = endpoints.Undecodable }, deferredUndecodable},
		"no secret":     {func(e *endpoints.Endpoint) { e.Secrets = nil }, deferredUnsigned},
		"no webhook": {func(e *endpoints.Endpoint) {
			e.URL, e.Target, e.RemovedAt = "", "", time.Now()
		}, deferredRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			acme := f.EndpointAt("https://shop.example", 7)
			held := acme
			row.hold(&held)
			f.Index.Put(held)
			const waiting = 100_000
			f.backlog(t, acme.MerchantID, waiting)
			d := f.dispatcher(t)
			d.sender = senderFunc(func() delivery.Result {
				return delivery.Result{Outcome: delivery.Delivered, Reason: delivery.ReasonDelivered}
			})
			clock := time.Now()
			d.now = func() time.Time { return clock }
			d.prepare()
			before := f.calls(t, "zrem")
			const seconds = 600
			for second := range seconds {
				clock = clock.Add(time.Second)
				if second%60 == 0 {
					f.Event(t, acme.MerchantID)
				}
				f.leaseAll(t, d)
			}
			const leases = 2 // they are an hour old, so some are looked at every five minutes
			if n := testutil.ToFloat64(d.metrics.deferred.WithLabelValues(row.reason)); n != leases*jobsPerAttempt {
				t.Errorf("%v events were deferred, want %d", n, leases*jobsPerAttempt)
			}
			const leasedAndDeferred = 2
			if touched := f.calls(t, "zrem") - before; touched != leasedAndDeferred*leases*jobsPerAttempt {
				t.Errorf("%d entries were touched, want %d", touched, leasedAndDeferred*leases*jobsPerAttempt)
			}
			if n := f.Redis(t).ZCard(t.Context(), storetest.TagOf(7)+"queue").Val(); n != waiting+seconds/60 {
				t.Errorf("%d events wait, want %d", n, waiting+seconds/60)
			}
			_, err := d.countBacklog(t.Context())
			dispatchertest.Must(t, err)
			if overdue := testutil.ToFloat64(d.metrics.overdueEvent); overdue != 0 {
				t.Errorf("an event waits for a dispatcher for %v s", overdue)
			}
			f.Index.Put(acme)
			_, err = d.lease(t.Context(), 7)
			dispatchertest.Must(t, err)
			dispatchertest.Eventually(t, "its events are delivered", func() bool {
				return testutil.ToFloat64(d.metrics.events.WithLabelValues("session.cancelled", outcomeDelivered)) >= jobsPerAttempt
			})
			d.queues.close(t.Context())
		})
	}
}
