package dispatcher

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/attempt"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/queue"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// Leases and sweeps begin with a ZRANGEBYSCORE: at rest there are none, however often a dispatcher polls.
func TestPoll_NothingDue(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("http://127.0.0.1:1", 7)
	f.Create(t, acme.MerchantID, nil)
	start(t, f.dispatcher(t))
	const polls, zsets = 2, session.Buckets // those of pending sessions: no bucket has events
	dispatchertest.Eventually(t, "it has polled some times", func() bool { return f.Commands(t)["zrange"] >= polls*zsets })
	if n := f.Commands(t)["zrangebyscore"]; n != 0 {
		t.Errorf("%d leases and sweeps, with nothing due", n)
	}
}

// A Redis at maxmemory is emptied: what waits is delivered, and what a dead endpoint does not take becomes a dead letter.
func TestPoll_FullRedis(t *testing.T) {
	f := newFixture(t)
	healthy, dead := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK)), dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusBadGateway))
	acme, corner := f.EndpointAt(healthy.URL, 7), f.EndpointAt(dead.URL, 7)
	// All attempts together are fewer than open the breaker of the dead endpoint.
	schedule := Schedule{0, time.Millisecond}
	const events = 30
	undelivered := (queue.BreakerThreshold - 1) / len(schedule)
	for range events {
		f.Event(t, acme.MerchantID)
	}
	for range undelivered {
		f.Event(t, corner.MerchantID)
	}
	dispatchertest.Must(t, f.Redis(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	start(t, f.dispatcher(t, func(o *Options) { o.Schedule = schedule }))
	healthy.Await(t, events)
	dispatchertest.Eventually(t, "the events of the dead endpoint are dead letters", func() bool { return len(f.DeadLetters(t)) == undelivered })
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: int64(undelivered)})
}

// A merchant whose endpoint takes nothing keeps no more waiting events than its bound. A neighbour in the bucket keeps all.
func TestCountBacklog_EndsExcess(t *testing.T) {
	f := newFixture(t)
	acme, corner := f.EndpointAt("http://127.0.0.1:1", 7), f.EndpointAt("http://127.0.0.1:1", 7)
	for range 5 {
		f.Event(t, acme.MerchantID)
	}
	f.Event(t, corner.MerchantID)
	d := f.dispatcher(t, func(o *Options) { o.MaxPending = 2 })
	_, err := d.countBacklog(t.Context())
	dispatchertest.Must(t, err)
	d.workers.Wait()
	letters := f.DeadLetters(t)
	for _, letter := range letters {
		if letter.Event.MerchantID != acme.MerchantID || letter.Reason != outbox.ReasonTooMany || letter.Merchant != acme.Merchant.String() {
			t.Errorf("a dead letter of %s (%s) because of %q", letter.Merchant, letter.Event.MerchantID, letter.Reason)
		}
	}
	if counted := d.metric(t, "webhook_dead_letters_total", outbox.ReasonTooMany); len(letters) != 3 || counted != 3 {
		t.Errorf("%d dead letters, %.0f are counted; want 3", len(letters), counted)
	}
	f.AwaitBacklog(t, 7, outbox.Backlog{Due: 3, Dead: 3})
}

func TestPoll_Rest(t *testing.T) {
	const short = 2 * pollInterval
	for name, row := range map[string]struct {
		expires              time.Duration // until the session does
		event, attempt, lost bool
		rests                bool
		min, max             time.Duration // until the next poll
	}{
		"nothing is due":            {expires: time.Hour, rests: true, min: restInterval, max: 2 * restInterval},
		"a session expires soon":    {expires: restInterval / 2, rests: true, max: restInterval / 2},
		"a session has expired":     {expires: -time.Second, max: short},
		"an event is due":           {expires: time.Hour, event: true, max: short},
		"an attempt is in progress": {expires: time.Hour, attempt: true, max: short},
		"a subscription is lost":    {expires: time.Hour, lost: true, max: short},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			created := f.Create(t, f.EndpointAt("http://127.0.0.1:1", 7).MerchantID, nil)
			d := f.dispatcher(t)
			for bucket := range session.Buckets {
				d.subscriber.Subscribed(session.Bucket(bucket))
			}
			f.expiresIn(t, created, row.expires)
			if row.event {
				f.Event(t, created.MerchantID)
			}
			if row.attempt {
				d.worker.Sender = dispatchertest.SenderFunc(func() delivery.Result {
					<-t.Context().Done()
					return delivery.Result{Reason: delivery.ReasonInterrupted}
				})
				f.Event(t, created.MerchantID)
				dispatchertest.Must(t, dispatchertest.Second(d.leaser.Deliver(t.Context(), 7)))
				dispatchertest.Eventually(t, "an attempt is in progress", func() bool { return d.queues.InFlight() == 1 })
			}
			if row.lost {
				d.subscriber.Lost(9, redis.ErrUnavailable)
			}
			dispatchertest.Must(t, d.poll(t.Context(), t.Context()))
			d.workers.Wait()
			if d.pause < row.min || d.pause > row.max {
				t.Errorf("polls again after %s, want %s to %s", d.pause, row.min, row.max)
			}
			if rests := d.state.Load() == resting; rests != row.rests {
				t.Errorf("rests: %t, want %t", rests, row.rests)
			}
		})
	}
}

// What begins during a poll starts no further one: else polls would follow leases.
func TestWake(t *testing.T) {
	for before, polls := range map[int32]int{awake: 0, polling: 0, resting: 1} {
		d := newFixture(t).dispatcher(t)
		d.state.Store(before)
		d.wake()
		if len(d.queues.Drained) != polls || d.state.Load() != awake {
			t.Errorf("in state %d: %d polls at once, want %d; then state %d, want %d", before, len(d.queues.Drained), polls, d.state.Load(), awake)
		}
	}
}

// expiresIn gives a pending session another expiry in the queue of them.
func (f testFixture) expiresIn(t *testing.T, s session.Session, in time.Duration) {
	t.Helper()
	dispatchertest.Must(t, f.Redis(t).ZAdd(t.Context(), redis.BucketKeyspace(s.ID.Bucket()).Key(outbox.ExpiryKey),
		goredis.Z{Score: float64(time.Now().Add(in).UnixMilli()), Member: s.ID.String()}).Err())
}

// A merchant whose breaker is open has an event due all the time. Each poll leases its bucket once, in case that others have one too.
func TestPoll_OpenBreaker(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("https://shop.example", 7)
	for range queue.BreakerThreshold + 1 {
		f.Event(t, acme.MerchantID)
	}
	began := time.Now()
	d := f.dispatcher(t, func(o *Options) { o.Now = func() time.Time { return began } }) // the breaker stays open
	d.worker.Sender = dispatchertest.SenderFunc(func() delivery.Result {
		return delivery.Result{Outcome: delivery.Failed, Reason: delivery.ReasonConnect}
	})
	start(t, d)
	dispatchertest.Eventually(t, "its breaker is open", func() bool {
		return d.metric(t, "webhook_deferrals_total", attempt.DeferredBreaker) > 0 && d.queues.InFlight() == 0
	})
	const polls, zsets = 5, 2 * session.Buckets
	before := f.Commands(t)
	var after map[string]int
	dispatchertest.Eventually(t, "it has polled some times", func() bool {
		after = f.Commands(t)
		return after["zrange"]-before["zrange"] >= polls*zsets
	})
	// A busy machine sees more polls than it waited for, and one of them half done.
	polled := (after["zrange"] - before["zrange"]) / zsets
	if n := after["zrangebyscore"] - before["zrangebyscore"]; n < 1 || n > polled+2 {
		t.Errorf("%d leases in %d polls, with nothing to deliver", n, polled)
	}
	f.Event(t, acme.MerchantID)
	dispatchertest.Must(t, dispatchertest.Second(d.countBacklog(t.Context())))
	if overdue := testutil.ToFloat64(d.metrics.overdueEvent); overdue != 0 {
		t.Errorf("an event that a breaker blocks waits for a dispatcher for %v s", overdue)
	}
}

// In each bucket there is one session past its time, and nobody reads it.
func TestSweep_EveryBucket(t *testing.T) {
	f := newFixture(t)
	start(t, f.dispatcher(t))
	merchants := make([]string, session.Buckets)
	for i := range merchants {
		merchants[i] = dispatchertest.NewMerchantID(session.Bucket(i))
		f.Create(t, merchants[i], func(n *store.NewSession) { n.Lifetime = 20 * time.Millisecond })
	}
	dispatchertest.Eventually(t, "nothing waits for the sweep", func() bool {
		keys, err := f.Redis(t).Keys(t.Context(), "{b*}:expiry").Result()
		return err == nil && len(keys) == 0
	})
	for _, merchantID := range merchants {
		_, page, err := f.Store.Feed(t.Context(), dispatchertest.Admission(merchantID), feed.Cursor{}, 10)
		if err != nil || len(page.Entries) != 1 || page.Entries[0].Event.Kind != v1alpha1.EventSessionExpired {
			t.Errorf("the feed of %s has %+v, want one session.expired: %v", merchantID, page.Entries, err)
		}
	}
}

func TestSweep_SendsExpired(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	d := f.dispatcher(t)
	start(t, d)
	created := f.Create(t, acme.MerchantID, func(n *store.NewSession) { n.Lifetime = 20 * time.Millisecond })
	if seen := shop.Await(t, 1); seen[0].ID != dispatchertest.EndedEvent(created.ID) {
		t.Errorf("saw %+v", seen[0])
	}
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	// The event is sent at its message, which may come before the answer to the sweep.
	dispatchertest.Eventually(t, "one expired session is counted", func() bool { return testutil.ToFloat64(d.metrics.expiredSessions) == 1 })
}

// A dispatcher sends an event at its message, without a poll, also one whose message arrives during a lease.
func TestRecorded_SendsAtOnce(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	d := f.dispatcher(t)
	d.pollEvery = 24 * time.Hour
	start(t, d)
	dispatchertest.Eventually(t, "it is subscribed", func() bool {
		channel := redis.BucketKeyspace(7).Key(store.EventsChannel)
		listeners, err := f.Redis(t).PubSubNumSub(t.Context(), channel).Result()
		return err == nil && listeners[channel] == 1
	})
	const events = 50
	for range events {
		f.Event(t, acme.MerchantID)
	}
	shop.Await(t, events)
	f.Create(t, acme.MerchantID, func(n *store.NewSession) { n.EmitCreated = true })
	f.AwaitBacklog(t, 7, outbox.Backlog{}) // it is not subscribed to
}

// slowIndex blocks the leases of one merchant's bucket, as a slow server of a Redis Cluster would.
type slowIndex struct {
	attempt.Index

	merchantID string
	leases     atomic.Int32
	released   chan struct{}
}

func (i *slowIndex) Endpoint(merchantID string) endpoints.Endpoint {
	if merchantID == i.merchantID {
		i.leases.Add(1)
		<-i.released
	}
	return i.Index.Endpoint(merchantID)
}

func TestPoll_SlowBucketDelaysNoOther(t *testing.T) {
	f := newFixture(t)
	shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	slow, acme := f.EndpointAt(shop.URL, 7), f.EndpointAt(shop.URL, 8)
	d := f.dispatcher(t)
	index := &slowIndex{Index: f.Index, merchantID: slow.MerchantID, released: make(chan struct{})}
	d.worker.Index = index
	f.Event(t, slow.MerchantID)
	start(t, d)
	t.Cleanup(func() { close(index.released) }) // before the dispatcher is stopped
	dispatchertest.Eventually(t, "the slow bucket is leased", func() bool { return index.leases.Load() == 1 })
	for n := range 3 {
		f.Event(t, slow.MerchantID)
		id := f.Event(t, acme.MerchantID)
		shop.AwaitEvent(t, n, id)
	}
	if n := index.leases.Load(); n != 1 {
		t.Errorf("%d leases of the slow bucket in progress, want 1", n)
	}
}

// Payments to be refunded are counted by how long they have waited, until a rail has confirmed.
func TestCountRefundsOwed(t *testing.T) {
	f := newFixture(t)
	d := f.dispatcher(t)
	wantRefunds := func(when string, want ...float64) {
		t.Helper()
		_, err := d.countRefundsOwed(t.Context())
		dispatchertest.Must(t, err)
		for i, age := range []string{"0h", "1h", "24h", "72h"} {
			if got := testutil.ToFloat64(d.metrics.refundsOwed.WithLabelValues(age)); got != want[i] {
				t.Errorf("%s: %v have waited for %s, want %v", when, got, age, want[i])
			}
		}
	}
	wantRefunds("at first", 0, 0, 0, 0)
	asks := storetest.Merchant()
	_, created, err := f.Store.CreateSession(t.Context(), asks, storetest.NewSession())
	dispatchertest.Must(t, err)
	id, rail := created.Session.ID, session.NewRail("bank")
	for _, ref := range []string{"1", "2", "3"} { // the first one pays
		payment := session.Payment{Rail: rail, Ref: ref, Outcome: session.Completed, AmountCents: created.Session.Charge.AmountCents}
		_, err := f.Store.Settle(t.Context(), id, payment)
		dispatchertest.Must(t, err)
	}
	wantRefunds("refused", 2, 0, 0, 0)
	c := f.Redis(t)
	ago := float64(time.Now().Add(-25 * time.Hour).UnixMilli())
	dispatchertest.Must(t, c.ZAdd(t.Context(), storetest.Tag(asks.MerchantID)+"owed", goredis.Z{Score: ago, Member: id.String() + " " + rail.Scope("2")}).Err())
	wantRefunds("a day later", 2, 1, 1, 0)
	for _, ref := range []string{"2", "3"} {
		refund := session.Refund{Rail: rail, Ref: "back-" + ref, PaymentRef: ref, AmountCents: created.Session.Charge.AmountCents}
		_, err := f.Store.Refund(t.Context(), id, refund)
		dispatchertest.Must(t, err)
	}
	wantRefunds("refunded", 0, 0, 0, 0)
}
