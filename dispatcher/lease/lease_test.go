package lease

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/attempt"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/queue"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestLease_DropsUnsubscribed(t *testing.T) {
	f, shop, acme := newFixture(t) // it has not asked for session.created
	f.Create(t, acme.MerchantID, func(n *store.NewSession) { n.EmitCreated = true })
	gone := dispatchertest.NewMerchantID(7)
	f.Index.Put(endpoints.Endpoint{MerchantID: gone, State: endpoints.Withdrawn})
	f.Event(t, gone)
	d := f.start(t)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	shop.WantAttempts(t, 0)
	for _, kind := range []string{"session.created", "session.cancelled"} {
		dispatchertest.Eventually(t, "one dropped event of kind "+kind+" is counted", func() bool {
			return d.metric(t, "webhook_events_total", kind, "dropped") == 1
		})
	}
}

// A dispatcher whose watch is frozen does not know who subscribes by now: it sends, and drops nothing.
func TestLease_FrozenWatch(t *testing.T) {
	f, shop, acme := newFixture(t) // it has not asked for session.created
	unsubscribed := f.EndpointAt("", 7)
	gone := endpoints.Endpoint{MerchantID: dispatchertest.NewMerchantID(7), State: endpoints.Withdrawn}
	f.Index.Put(gone)
	f.Index.SetAge(endpoints.MaxAge + time.Second)
	f.Create(t, acme.MerchantID, func(n *store.NewSession) { n.EmitCreated = true })
	for _, merchantID := range []string{unsubscribed.MerchantID, gone.MerchantID} {
		f.Event(t, merchantID)
	}
	d := f.start(t)
	d.awaitDeferred(t, "frozen_watch", 3)
	wanted := f.Event(t, acme.MerchantID)
	shop.AwaitEvent(t, 0, wanted)
	for _, kind := range []string{"session.created", "session.cancelled"} {
		if n := d.metric(t, "webhook_events_total", kind, "dropped"); n != 0 {
			t.Errorf("%v events of kind %s were dropped", n, kind)
		}
	}
	f.Index.SetAge(0)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	shop.WantAttempts(t, 1)
}

// It does not know either to which target others send by now: a disabled one stays disabled.
func TestLease_FrozenWatchResumesNothing(t *testing.T) {
	f, shop, acme := newFixture(t)
	f.Disable(t, acme)
	f.Moved(acme, "former")
	f.Index.SetAge(endpoints.MaxAge + time.Second)
	id := f.Event(t, acme.MerchantID)
	d := f.start(t)
	d.awaitDeferred(t, "frozen_watch", 1)
	if state := f.State(t, acme); !state.Disabled() || state.Target != acme.Target || len(shop.IDs()) > 0 {
		t.Errorf("the endpoint is %+v after %d attempts", state, len(shop.IDs()))
	}
	f.Index.SetAge(0)
	shop.AwaitEvent(t, 0, id)
}

// It does not know either whether the endpoint that it knows as disabled is still the merchant's: its events wait instead of becoming dead letters.
func TestLease_FrozenWatchMakesNoDeadLetters(t *testing.T) {
	f, _, acme := newFixture(t)
	f.Disable(t, acme)
	f.Index.SetAge(endpoints.MaxAge + time.Second)
	f.Event(t, acme.MerchantID)
	d := f.start(t)
	d.awaitDeferred(t, "frozen_watch", 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{Due: 1, Dead: 1}) // Disable has made the dead letter
	f.Index.SetAge(0)
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 2})
}

// setOld makes an event an hour old.
func (f testFixture) setOld(t *testing.T, id string) {
	t.Helper()
	long := time.Now().Add(-time.Hour).UnixMilli()
	storetest.ChangeEvent(t, f.Redis(t), storetest.BucketTag(7)+"event:"+id, storetest.EventTime, strconv.FormatInt(long, 10))
}

// What was published of a merchant may be lost, however old the event is and whatever the watches have heard since.
func TestLease_UnknownMerchant(t *testing.T) {
	f, shop, acme := newFixture(t)
	stranger := dispatchertest.NewMerchantID(7)
	id := f.Event(t, stranger)
	f.setOld(t, id)
	d := f.start(t)
	d.awaitDeferred(t, "unknown_merchant", 1)
	dispatchertest.Eventually(t, "the merchant is logged", func() bool { return strings.Contains(f.Log.String(), stranger) })
	acme.MerchantID = stranger
	f.Index.Put(acme)
	shop.AwaitEvent(t, 0, id)
}

// However old the event is, and however much the index knows.
func TestLease_UndecodableMerchant(t *testing.T) {
	f, shop, acme := newFixture(t)
	f.Index.Put(endpoints.Endpoint{MerchantID: acme.MerchantID, State: endpoints.Undecodable})
	id := f.Event(t, acme.MerchantID)
	f.setOld(t, id)
	d := f.start(t)
	d.awaitDeferred(t, "merchant_decode_error", 1)
	f.Index.Put(acme)
	shop.AwaitEvent(t, 0, id)
}

// A webhook that is removed for a short time loses nothing.
func TestLease_RemovedWebhook(t *testing.T) {
	f, shop, acme := newFixture(t)
	removed := acme
	removed.URL, removed.Target, removed.RemovedAt = "", "", time.Now()
	f.Index.Put(removed)
	id := f.Event(t, acme.MerchantID)
	d := f.start(t)
	d.awaitDeferred(t, "webhook_removed", 1)
	f.Index.Put(acme)
	shop.AwaitEvent(t, 0, id)
}

// What has waited for another webhook is dropped, counted and logged once the operator allows it; later events are dropped as those of a
// merchant that never had a webhook.
func TestLease_RemovedWebhookIsGivenUp(t *testing.T) {
	f := testFixture{dispatchertest.New(t)}
	acme := f.EndpointAt("", 7)
	acme.Target, acme.RemovedAt, acme.Dropped = "", time.Now().Add(-published.WebhookGrace-time.Minute), true
	f.Index.Put(acme)
	f.setOld(t, f.Event(t, acme.MerchantID)) // an hour old
	f.Event(t, acme.MerchantID)
	d := f.start(t)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	for _, outcome := range []string{"webhook_removed", "dropped"} {
		dispatchertest.Eventually(t, "one event is counted as "+outcome, func() bool {
			return d.metric(t, "webhook_events_total", "session.cancelled", outcome) == 1
		})
	}
	dispatchertest.Eventually(t, "the log says whose", func() bool {
		return strings.Contains(f.Log.String(), "dropped events of a webhook that was removed") && strings.Contains(f.Log.String(), acme.MerchantID)
	})
}

// In a rolling upgrade newer events are left to newer dispatchers.
func TestLease_UnknownKind(t *testing.T) {
	f, shop, acme := newFixture(t)
	id := f.Event(t, acme.MerchantID)
	record := storetest.BucketTag(7) + "event:" + id
	storetest.ChangeEvent(t, f.Redis(t), record, storetest.EventKind, "session.refunded")
	d := f.start(t)
	d.awaitDeferred(t, "unsupported_event", 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{Due: 1})
	shop.WantAttempts(t, 0)
	storetest.ChangeEvent(t, f.Redis(t), record, storetest.EventKind, "session.cancelled") // as if the dispatcher were newer
	f.MakeDue(t, 7, id)
	shop.AwaitEvent(t, 0, id)
}

// An event that Redis has expired is counted.
func TestLease_ExpiredEvent(t *testing.T) {
	f := testFixture{dispatchertest.New(t)}
	id := f.Event(t, dispatchertest.NewMerchantID(7))
	if err := f.Redis(t).Del(t.Context(), storetest.BucketTag(7)+"event:"+id).Err(); err != nil { // as Redis does after 30 days
		t.Fatal(err)
	}
	d := f.start(t)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	dispatchertest.Eventually(t, "it is counted", func() bool { return d.metric(t, "webhook_events_total", "", "expired") == 1 })
}

func TestLease_NoSigningSecret(t *testing.T) {
	f, shop, acme := newFixture(t)
	signed := acme
	acme.Secrets = nil
	f.Index.Put(acme)
	id := f.Event(t, acme.MerchantID)
	d := f.start(t)
	d.awaitDeferred(t, "no_secret", 1)
	shop.WantAttempts(t, 0)
	f.Index.Put(signed)
	if seen := shop.Await(t, 1); seen[0].ID != id || !seen[0].Verified {
		t.Errorf("saw %+v, want %s", seen[0], id)
	}
}

// leaseAll leases what is due.
func (d *testLeaser) leaseAll(t *testing.T) {
	t.Helper()
	for more := true; more; {
		var err error
		more, err = d.Deliver(t.Context(), 7)
		dispatchertest.Must(t, err)
	}
}

// backlog queues copies of an event of the merchant, an hour old, all of them due.
func (f testFixture) backlog(t *testing.T, merchantID string, events int) {
	t.Helper()
	id := f.Event(t, merchantID)
	f.setOld(t, id)
	storetest.CopyEvent(t, f.Redis(t), storetest.BucketTag(session.MerchantBucket(merchantID))+"event:"+id, merchantID, events-1)
}

// An endpoint that is down has 100,000 events waiting and gets a new one each second, which makes it due again. None of them is touched
// until the breaker allows an attempt.
func TestLease_OpenBreaker(t *testing.T) {
	f := testFixture{dispatchertest.New(t)}
	acme := f.EndpointAt("https://shop.example", 7)
	const waiting = 100_000
	f.backlog(t, acme.MerchantID, waiting)
	var attempts atomic.Int64
	d := f.leaser(dispatchertest.SenderFunc(func() delivery.Result {
		attempts.Add(1)
		return delivery.Result{Outcome: delivery.Failed, Reason: delivery.ReasonConnect}
	}))
	clock := noon
	d.clock = func() time.Time { return clock }

	// touched leases what is due, and returns how many events that took out of the queue.
	touched := func() int {
		t.Helper()
		before := f.Commands(t)["hgetall"]
		d.leaseAll(t)
		return f.Commands(t)["hgetall"] - before
	}
	touched()
	dispatchertest.Eventually(t, "the breaker is open", func() bool { return attempts.Load() == queue.BreakerThreshold && d.queues.InFlight() == 0 })
	dispatchertest.Eventually(t, "the events that were leased wait in Redis", func() bool {
		return d.metric(t, "webhook_deferrals_total", attempt.DeferredBreaker) >= jobsPerAttempt-queue.BreakerThreshold
	})
	const seconds = 10 // by the clock of Redis the events that were leased are due again after five seconds
	for second := range seconds {
		f.Event(t, acme.MerchantID)
		if due := f.Redis(t).ZScore(t.Context(), storetest.BucketTag(7)+"due", acme.MerchantID).Val(); due > float64(time.Now().UnixMilli()) {
			t.Fatalf("second %d: the new event is due at %.0f", second, due)
		}
		if n := touched(); n != 0 {
			t.Fatalf("second %d: %d events were leased", second, n)
		}
	}
	if n := f.Redis(t).ZCard(t.Context(), storetest.BucketTag(7)+"queue").Val(); n != waiting+seconds {
		t.Errorf("%d events wait, want %d", n, waiting+seconds)
	}

	clock = clock.Add(queue.MaxOpen)
	f.Event(t, acme.MerchantID)
	const leasedAndDeferred = 2
	if n := touched(); n == 0 || n > leasedAndDeferred*2*attempt.Batch {
		t.Errorf("%d events were touched when the breaker allowed an attempt", n)
	}
	dispatchertest.Eventually(t, "there is one attempt", func() bool { return attempts.Load() == queue.BreakerThreshold+1 && d.queues.InFlight() == 0 })
	d.queues.Close(t.Context())
}

// One dispatcher has no egress: its breakers are open. The other one gets each event at once, however often the first one asks.
func TestLease_OtherDispatcherHasNoEgress(t *testing.T) {
	f := testFixture{dispatchertest.New(t)}
	acme := f.EndpointAt("https://shop.example", 7)
	var attempts, delivered atomic.Int64
	isolated := f.leaser(dispatchertest.SenderFunc(func() delivery.Result {
		attempts.Add(1)
		return delivery.Result{Outcome: delivery.Failed, Reason: delivery.ReasonConnect}
	}))
	d := f.leaser(dispatchertest.SenderFunc(func() delivery.Result {
		delivered.Add(1)
		return delivery.Result{Outcome: delivery.Delivered, Reason: delivery.ReasonDelivered}
	}))
	isolated.clock = func() time.Time { return noon } // its breaker stays open
	dispatchertest.Eventually(t, "its breaker is open", func() bool {
		f.Event(t, acme.MerchantID)
		isolated.leaseAll(t)
		return attempts.Load() == queue.BreakerThreshold && isolated.queues.InFlight() == 0
	})
	dispatchertest.Eventually(t, "the other one has delivered what was deferred", func() bool {
		d.leaseAll(t)
		return f.Redis(t).ZCard(t.Context(), storetest.BucketTag(7)+"queue").Val() == 0
	})
	for n := range 20 {
		before := delivered.Load()
		f.Event(t, acme.MerchantID)
		isolated.leaseAll(t)
		d.leaseAll(t)
		dispatchertest.Eventually(t, "the event is delivered", func() bool { return d.queues.InFlight() == 0 })
		if delivered.Load() != before+1 {
			t.Fatalf("event %d was not leased", n)
		}
	}
	if got := attempts.Load(); got != queue.BreakerThreshold {
		t.Errorf("%d attempts without egress, want %d", got, queue.BreakerThreshold)
	}
}

// One unreadable field of an endpoint's state makes no dead letter of its events. They are delivered once the state is repaired.
func TestLease_UnreadableEndpoint(t *testing.T) {
	f, shop, acme := newFixture(t)
	const events = 5
	for range events {
		f.Event(t, acme.MerchantID)
	}
	dispatchertest.Must(t, f.Redis(t).HSet(t.Context(), storetest.BucketTag(7)+"endpoint:"+acme.MerchantID, "target", acme.Target, "disabled", "soon").Err())
	d := f.start(t)
	d.awaitDeferred(t, "endpoint_decode_error", events)
	f.AwaitBacklog(t, 7, outbox.Backlog{Due: events})
	f.Moved(acme, "resumed")
	f.Event(t, acme.MerchantID)
	shop.Await(t, 1)
}

// None of a merchant's 100,000 events can be sent, for a reason that is the merchant's. A few of them are looked at now and then, however
// many new ones come. Once the reason ends, they are delivered at once.
func TestWaitingAccounts(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*endpoints.Endpoint)
		reason string
	}{
		"unknown":       {func(e *endpoints.Endpoint) { *e = endpoints.Endpoint{MerchantID: e.MerchantID} }, "unknown_merchant"},
		"not decodable": {func(e *endpoints.Endpoint) { e.State = endpoints.Undecodable }, "merchant_decode_error"},
		"no secret":     {func(e *endpoints.Endpoint) { e.Secrets = nil }, "no_secret"},
		"no webhook": {func(e *endpoints.Endpoint) {
			e.URL, e.Target, e.RemovedAt = "", "", time.Now()
		}, "webhook_removed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := testFixture{dispatchertest.New(t)}
			acme := f.EndpointAt("https://shop.example", 7)
			waiting := acme
			row.change(&waiting)
			f.Index.Put(waiting)
			const backlog = 100_000
			f.backlog(t, acme.MerchantID, backlog)
			d := f.leaser(dispatchertest.SenderFunc(func() delivery.Result {
				return delivery.Result{Outcome: delivery.Delivered, Reason: delivery.ReasonDelivered}
			}))
			clock := time.Now()
			d.clock = func() time.Time { return clock }
			before := f.Commands(t)["zscore"]
			const seconds = 600
			for second := range seconds {
				clock = clock.Add(time.Second)
				if second%60 == 0 {
					f.Event(t, acme.MerchantID)
				}
				d.leaseAll(t)
			}
			const leases = 2 // they are an hour old, so some are looked at every five minutes
			if n := d.metric(t, "webhook_deferrals_total", row.reason); n != leases*jobsPerAttempt {
				t.Errorf("%v events were deferred, want %d", n, leases*jobsPerAttempt)
			}
			if putBack := f.Commands(t)["zscore"] - before; putBack != leases*jobsPerAttempt {
				t.Errorf("%d entries were put back, want %d", putBack, leases*jobsPerAttempt)
			}
			if n := f.Redis(t).ZCard(t.Context(), storetest.BucketTag(7)+"queue").Val(); n != backlog+seconds/60 {
				t.Errorf("%d events wait, want %d", n, backlog+seconds/60)
			}
			waits, err := f.Outbox.Backlog(t.Context(), 7, d.Paused(7)...)
			if err != nil || waits.Overdue != 0 {
				t.Errorf("an event waits for a dispatcher for %s: %v", waits.Overdue, err)
			}
			f.Index.Put(acme)
			_, err = d.Deliver(t.Context(), 7)
			dispatchertest.Must(t, err)
			dispatchertest.Eventually(t, "its events are delivered", func() bool {
				return d.metric(t, "webhook_events_total", "session.cancelled", "delivered") >= jobsPerAttempt
			})
			d.queues.Close(t.Context())
		})
	}
}

// It must not become a dead letter because nobody has looked after disabled endpoints in between.
func TestLease_ResumedEndpoint(t *testing.T) {
	f, shop, acme := newFixture(t)
	f.Disable(t, acme)
	f.Moved(acme, "resumed")
	id := f.Event(t, acme.MerchantID)
	d := f.leaser(dispatchertest.NewSender(t))
	if _, err := d.Deliver(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	shop.AwaitEvent(t, 0, id)
	d.queues.Close(t.Context())
	if !d.queues.Wait(dispatchertest.Patience) {
		t.Error("the attempt never ended")
	}
	if letters := f.DeadLetters(t); len(letters) != 1 { // the one the endpoint was disabled with
		t.Errorf("dead letters: %+v", letters)
	}
}
