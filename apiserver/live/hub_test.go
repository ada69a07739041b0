package live_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/leaks"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestMain(m *testing.M) { leaks.Run(m, func() error { return nil }) }

// start runs a Hub that reads only after messages unless the test says otherwise.
func start(t *testing.T, s *storetest.Services, change ...func(*live.Options)) *live.Hub {
	t.Helper()
	options := live.Options{
		Read: s.WatchedSession, Interval: time.Hour, MaxWatches: 1000, MaxWatchesPerAddress: 1000,
		Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
	for _, c := range change {
		c(&options)
	}
	hub := live.New(s.Client, options)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); hub.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return hub
}

func watch(t *testing.T, hub *live.Hub, id session.ID) *live.Watch {
	t.Helper()
	w, err := hub.Watch("shops", id, "ip:203.0.113.7")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func wantEnded(t *testing.T, w *live.Watch, want session.Status) {
	t.Helper()
	select {
	case <-w.Ended():
		if got, err := w.Session(); err != nil || got.Status != want {
			t.Errorf("ended as %s, %v, want %s", got.Status, err, want)
		}
	case <-time.After(storetest.Timeout):
		t.Errorf("not notified of %s", want)
	}
}

func cancel(t *testing.T, s *storetest.Services, asks admission.Request, id session.ID) {
	t.Helper()
	if _, _, err := s.Cancel(t.Context(), asks, id); err != nil {
		t.Fatal(err)
	}
}

// The session ends after the watcher has read it, and before Redis has subscribed the replica: nobody publishes anything to it.
func TestHub_EndBeforeSubscription(t *testing.T) {
	server := redistest.Start(t)
	s := storetest.New(t, server.URL())
	// Subscriptions wait while the end does not: the hub has a client, and so a user, of its own.
	c := storetest.Inspect(t, server)
	set := func(rule string) {
		t.Helper()
		if err := c.Do(t.Context(), "ACL", "SETUSER", "hub", "on", ">secret", "~{b*", "+@all", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("resetchannels")
	hub := start(t, &storetest.Services{Store: s.Store, Client: storetest.Client(t, "redis://hub:secret@"+server.Addr())})
	asks := storetest.MerchantIn(7)
	id := storetest.MustCreate(t, s, asks, storetest.NewSession()).Session.ID
	w := watch(t, hub, id)
	sess, err := s.WatchedSession(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	w.Seen(sess)
	cancel(t, s, asks, id)
	set("allchannels")
	wantEnded(t, w, session.Cancelled)
}

// A message comes while the session is being read, and the reader has the state of before: it reads once more.
func TestHub_MessageDuringRead(t *testing.T) {
	server := redistest.Start(t)
	s := storetest.New(t, server.URL())
	asks := storetest.MerchantIn(7)
	id := storetest.MustCreate(t, s, asks, storetest.NewSession()).Session.ID
	reading, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	hub := start(t, s, func(o *live.Options) {
		o.Read = func(ctx context.Context, id session.ID) (store.PublicSession, error) {
			sess, err := s.WatchedSession(ctx, id)
			if first.CompareAndSwap(false, true) {
				close(reading)
				<-goOn
			}
			return sess, err
		}
	})
	w := watch(t, hub, id)
	<-reading // because Redis has subscribed the bucket
	cancel(t, s, asks, id)
	// Messages come in order: when one to another watched session is done with, so is the first.
	other := storetest.MustCreate(t, s, asks, storetest.NewSession()).Session.ID
	second := watch(t, hub, other)
	cancel(t, s, asks, other)
	wantEnded(t, second, session.Cancelled)
	close(goOn)
	wantEnded(t, w, session.Cancelled)
}

// A session ends before Redis has subscribed the replica, and all readers are busy then. What the watcher has read before does not put off the read
// that is due.
func TestHub_SeenWhileReadersAreBusy(t *testing.T) {
	server := redistest.Start(t)
	s, quiet := storetest.New(t, server.URL()), quietServices(t, server)
	asks := storetest.MerchantIn(7)
	id := storetest.MustCreate(t, s, asks, storetest.NewSession()).Session.ID
	const readers = 8
	busy, goOn := make(chan struct{}, readers+1), make(chan struct{})
	registry := prometheus.NewRegistry()
	hub := start(t, s, func(o *live.Options) {
		o.Registerer = registry
		o.Read = func(ctx context.Context, read session.ID) (store.PublicSession, error) {
			if read != id {
				busy <- struct{}{}
				<-goOn
			}
			return s.WatchedSession(ctx, read)
		}
	})
	free := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(free)
	subscribed := func(buckets int) {
		t.Helper()
		await.Until(t, storetest.Timeout, "Redis has subscribed the buckets", func() bool {
			return gauge(t, registry, "merchant_operator_redis_subscriptions", "active") == float64(buckets)
		})
	}
	for i := range readers + 1 { // the last one waits for a reader
		watch(t, hub, storetest.MustCreate(t, s, storetest.MerchantIn(session.Bucket(20+i)), storetest.NewSession()).Session.ID)
		subscribed(i + 1)
	}
	for range readers {
		<-busy
	}

	w := watch(t, hub, id)
	sess, err := s.WatchedSession(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	cancel(t, quiet, asks, id)
	subscribed(readers + 2)
	w.Seen(sess)
	free()
	wantEnded(t, w, session.Cancelled)
}

// Money that a pending session did not take goes back, and no message of it arrives. Its watchers are notified when the session is read
// in its turn, of the refund too, and not while there is no such money.
func TestHub_RefusedPaymentWithoutMessage(t *testing.T) {
	server := redistest.Start(t)
	s, quiet := storetest.New(t, server.URL()), quietServices(t, server)
	var reads, changes atomic.Int64
	hub := start(t, s, func(o *live.Options) {
		o.Interval = 10 * time.Millisecond
		o.Read = func(ctx context.Context, id session.ID) (store.PublicSession, error) {
			defer reads.Add(1)
			return s.WatchedSession(ctx, id)
		}
	})
	id := storetest.MustCreate(t, s, storetest.MerchantIn(7), storetest.NewSession()).Session.ID
	watch(t, hub, id).Notify(func() {}, func() { changes.Add(1) })
	await.Until(t, storetest.Timeout, "the session is read again and again", func() bool { return reads.Load() > 3 })
	if n := changes.Load(); n != 0 {
		t.Errorf("notified %d times of a session to which nothing has happened", n)
	}
	payment := storetest.Of(1300, storetest.Paid("wrong"))
	if _, err := quiet.Settle(t.Context(), id, payment); err != nil {
		t.Fatal(err)
	}
	await.Until(t, storetest.Timeout, "the watcher is notified of the payment", func() bool { return changes.Load() > 0 })
	if _, err := quiet.Refund(t.Context(), id, session.Refund{Rail: payment.Rail, Ref: "back", PaymentRef: payment.Ref, AmountCents: 1300}); err != nil {
		t.Fatal(err)
	}
	before := changes.Load() + 1 // one read may have begun before the refund
	await.Until(t, storetest.Timeout, "the watcher is notified of the refund", func() bool { return changes.Load() > before })
}

// quietServices returns services whose scripts publish nothing.
func quietServices(t *testing.T, server *redistest.Server) *storetest.Services {
	t.Helper()
	if err := storetest.Inspect(t, server).Do(t.Context(), "ACL", "SETUSER", "quiet", "on", ">secret", "~{b*", "+@all", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	return storetest.New(t, "redis://quiet:secret@"+server.Addr())
}

// gauge returns the value of a gauge with a label.
func gauge(t *testing.T, from prometheus.Gatherer, name, label string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && metric.GetLabel()[0].GetValue() == label {
				return metric.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// Anyone with the id of a session can watch it, from any number of addresses.
func TestHub_PayersLeaveRoomForFeeds(t *testing.T) {
	hub := start(t, storetest.New(t, redistest.Start(t).URL()), func(o *live.Options) { o.MaxWatches = 32 })
	var err error
	watches := 0
	for err == nil {
		var w *live.Watch
		if w, err = hub.Watch(fmt.Sprint(watches), session.NewID(storetest.ID(), false), fmt.Sprintf("ip:203.0.113.%d", watches)); err == nil {
			t.Cleanup(w.Stop)
			watches++
		}
	}
	if !errors.Is(err, live.ErrTooMany) || watches != 30 {
		t.Errorf("%d watches, then %v", watches, err)
	}
	for range 2 {
		w, err := hub.WatchFeed(storetest.ID(), storetest.ID())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
	}
	if _, err := hub.WatchFeed(storetest.ID(), storetest.ID()); !errors.Is(err, live.ErrTooMany) {
		t.Errorf("a watch too many: %v", err)
	}
}

// A tenant may have any number of merchants, all of which wait for their feeds. Another tenant's merchants, and payers, still find places.
func TestHub_TenantLeavesRoom(t *testing.T) {
	hub := start(t, storetest.New(t, redistest.Start(t).URL()), func(o *live.Options) { o.MaxWatches = 64 })
	wait := func(tenant string) (feeds int) {
		t.Helper()
		for {
			w, err := hub.WatchFeed(tenant, storetest.ID())
			if err != nil {
				return feeds
			}
			t.Cleanup(w.Stop)
			feeds++
		}
	}
	for _, row := range []struct {
		tenant string
		atMost int
	}{{"greedy", 16}, {"another", 8}, {"victim", 4}} {
		if feeds := wait(row.tenant); feeds == 0 || feeds > row.atMost {
			t.Errorf("%s has %d waits, want 1 to %d", row.tenant, feeds, row.atMost)
		}
	}
	for i := range 32 {
		w, err := hub.Watch(fmt.Sprint(i), session.NewID(storetest.ID(), false), fmt.Sprint("ip:", i))
		if err != nil {
			t.Fatalf("payer %d: %v", i, err)
		}
		t.Cleanup(w.Stop)
	}
}

// The payers of one tenant come from any number of addresses. Payers of another tenant, and of a third one, still find places.
func TestHub_PayersOfOneTenantLeaveRoom(t *testing.T) {
	hub := start(t, storetest.New(t, redistest.Start(t).URL()), func(o *live.Options) { o.MaxWatches = 64 })
	watchAll := func(tenant string) (watches int) {
		t.Helper()
		for {
			w, err := hub.Watch(tenant, session.NewID(storetest.ID(), false), fmt.Sprint(tenant, watches))
			if err != nil {
				return watches
			}
			t.Cleanup(w.Stop)
			watches++
		}
	}
	for _, row := range []struct {
		tenant string
		want   int
	}{{"greedy", 30}, {"another", 15}, {"victim", 8}} {
		if watches := watchAll(row.tenant); watches != row.want {
			t.Errorf("%s has %d streams, want %d", row.tenant, watches, row.want)
		}
	}
}

func TestHub_ExpiredAndVanished(t *testing.T) {
	server := redistest.Start(t)
	s := storetest.New(t, server.URL())
	hub := start(t, s, func(o *live.Options) { o.Interval = time.Second })
	asks := storetest.MerchantIn(7)
	brief := storetest.NewSession()
	brief.Lifetime = 50 * time.Millisecond
	id := storetest.MustCreate(t, s, asks, brief).Session.ID
	w := watch(t, hub, id)
	wantEnded(t, w, session.Expired) // nobody else looks at it

	gone := watch(t, hub, session.NewID("abcdefgh2345", false))
	select {
	case <-gone.Ended():
		if _, err := gone.Session(); err == nil {
			t.Error("a session that is not there has a state")
		}
	case <-time.After(storetest.Timeout):
		t.Error("not notified that the session is gone")
	}
}

// Redis cannot read one session: it has expired, and a full Redis cannot write that, or its slot moves. Others are read all the same.
func TestHub_UnreadableSession(t *testing.T) {
	for name, reason := range map[string]error{"full": redis.ErrFull, "slot moves": redis.ErrSlotMoves} {
		t.Run(name, func(t *testing.T) { testUnreadable(t, reason) })
	}
}

func testUnreadable(t *testing.T, reason error) {
	t.Helper()
	server := redistest.Start(t)
	s := storetest.New(t, server.URL())
	asks := storetest.MerchantIn(7)
	overdue := storetest.MustCreate(t, s, asks, storetest.NewSession()).Session.ID
	var tries atomic.Int64
	hub := start(t, s, func(o *live.Options) {
		o.Read = func(ctx context.Context, id session.ID) (store.PublicSession, error) {
			if id == overdue {
				tries.Add(1)
				return store.PublicSession{}, fmt.Errorf("%w: %w", redis.ErrUnavailable, reason)
			}
			return s.WatchedSession(ctx, id)
		}
	})
	watch(t, hub, overdue)
	await.Until(t, storetest.Timeout, "the overdue session is read", func() bool { return tries.Load() > 0 })
	brief := storetest.NewSession()
	brief.Lifetime = 50 * time.Millisecond
	w := watch(t, hub, storetest.MustCreate(t, s, asks, brief).Session.ID)
	w.Seen(store.PublicSession{Status: session.Pending, ExpiresIn: brief.Lifetime})
	wantEnded(t, w, session.Expired)
	if n := tries.Load(); n != 1 {
		t.Errorf("the other session is read behind try %d of the overdue one", n)
	}
}

// Many watch, in all buckets of a cluster, and each is notified of its own session.
func TestHub_Cluster(t *testing.T) {
	servers := storetest.StartCluster(t)
	s := storetest.New(t, "redis+cluster://"+servers[0].Addr())
	hub := start(t, s)
	for bucket := range session.Bucket(session.Buckets) {
		asks := storetest.MerchantIn(bucket)
		id := storetest.MustCreate(t, s, asks, storetest.NewSession()).Session.ID
		watches := []*live.Watch{watch(t, hub, id), watch(t, hub, id)}
		pending := watch(t, hub, storetest.MustCreate(t, s, asks, storetest.NewSession()).Session.ID)
		cancel(t, s, asks, id)
		for _, w := range watches {
			wantEnded(t, w, session.Cancelled)
		}
		select {
		case <-pending.Ended():
			t.Errorf("bucket %d: another session has ended", bucket)
		default:
		}
	}
}

// A primary of a Redis Cluster is silent, and more sessions of it are due than there are readers. A session of another primary is
// read when it expires, before all of them were tried.
func TestHub_SilentPrimary(t *testing.T) {
	servers := storetest.StartCluster(t)
	s := storetest.New(t, "redis+cluster://"+servers[0].Addr(), func(o *redis.Options) { o.Timeout = 300 * time.Millisecond })
	client := s.Client
	silent := servers[2]
	isSilent := func(bucket session.Bucket) bool {
		return client.Server(t.Context(), string(redis.BucketKeyspace(bucket))) == silent.Addr()
	}
	await.Until(t, storetest.Timeout, "a request has found the slots", func() bool {
		_, _ = s.Admit(t.Context(), storetest.Merchant())
		return len(client.ByServer(t.Context(), session.AllBuckets())) == len(servers)
	})
	var healthy session.Bucket
	var due []session.ID
	const perBucket = 4
	for _, bucket := range session.AllBuckets() {
		if !isSilent(bucket) {
			healthy = bucket
			continue
		}
		for range perBucket {
			due = append(due, session.NewID(storetest.MerchantIn(bucket).MerchantID, false))
		}
	}
	brief := storetest.NewSession()
	brief.Lifetime = 50 * time.Millisecond
	victim := storetest.MustCreate(t, s, storetest.MerchantIn(healthy), brief).Session.ID
	silent.Pause()

	var tried atomic.Int64
	hub := start(t, s, func(o *live.Options) {
		o.Interval = 10 * time.Millisecond
		o.Read = func(ctx context.Context, id session.ID) (store.PublicSession, error) {
			if isSilent(id.Bucket()) {
				tried.Add(1)
			}
			return s.WatchedSession(ctx, id)
		}
	})
	for _, id := range due {
		watch(t, hub, id)
	}
	await.Until(t, storetest.Timeout, "a session of the silent primary is read", func() bool { return tried.Load() > 0 })
	wantEnded(t, watch(t, hub, victim), session.Expired)
	if n := tried.Load(); n >= int64(len(due))/2 {
		t.Errorf("%d reads of the silent primary came first; %d sessions of it are due", n, len(due))
	}
}
