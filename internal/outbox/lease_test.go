package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// fixture is a Redis of its own, so that nobody else's events come due, and one merchant.
type fixture struct {
	*storetest.Services

	server *redistest.Server
	redis  *goredis.Client
	asks   store.Admission
	tag    string
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	server := redistest.Start(t)
	asks := storetest.Merchant()
	return fixture{storetest.New(t, server.URL()), server, storetest.Inspect(t, server), asks, storetest.Tag(asks.MerchantID)}
}

func (s fixture) bucket() session.Bucket { return session.BucketOf(s.asks.MerchantID) }

// event cancels a new session and returns the id of the event that tells of it.
func (s fixture) event(t *testing.T) string {
	t.Helper()
	id := storetest.MustCreate(t, s.Services, s.asks, storetest.NewSession()).Session.ID
	if _, _, err := s.Cancel(t.Context(), s.asks, id); err != nil {
		t.Fatal(err)
	}
	return "evt_" + id.String()[len("ps_"):] + "_ended"
}

func (s fixture) leaseFor(t *testing.T, long time.Duration, limit int) []outbox.Lease {
	t.Helper()
	leased, err := s.Lease(t.Context(), s.bucket(), outbox.LeaseRequest{HolderIdentity: "a test", For: long, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	if leased.More != (len(leased.Leases) == limit) {
		t.Errorf("%d events, of which there are more: %t", len(leased.Leases), leased.More)
	}
	return leased.Leases
}

// one leases the one event that is due.
func (s fixture) one(t *testing.T) outbox.Lease {
	t.Helper()
	leases := s.leaseFor(t, time.Hour, 10)
	if len(leases) != 1 {
		t.Fatalf("%d events are due, want 1", len(leases))
	}
	return leases[0]
}

// dueIn is the time until an event is due; absent: it never is.
func (s fixture) dueIn(t *testing.T, id string) (in time.Duration, there bool) {
	t.Helper()
	_, at, there := storetest.Queued(t, s.redis, s.tag, id)
	return at.Sub(s.redis.Time(t.Context()).Val()), there
}

func idsOf(leases []outbox.Lease) []string {
	ids := make([]string, len(leases))
	for i, lease := range leases {
		ids[i] = lease.Event.ID
	}
	return ids
}

func TestAnEventIsLeasedToOneAtATime(t *testing.T) {
	s := newFixture(t)
	ids := []string{s.event(t), s.event(t), s.event(t)}
	first, second := s.leaseFor(t, time.Hour, 2), s.leaseFor(t, time.Hour, 2)
	if got := append(idsOf(first), idsOf(second)...); !sameSet(got, ids) {
		t.Errorf("leased %v, want each of %v once", got, ids)
	}
	if again := s.leaseFor(t, time.Hour, 2); len(again) != 0 {
		t.Errorf("leased a second time: %v", idsOf(again))
	}
	lease := first[0]
	if lease.Event.Kind != v1alpha1.EventSessionCancelled || lease.Event.MerchantID != s.asks.MerchantID ||
		lease.Event.Session.Status != session.Cancelled || lease.Attempts != 0 || lease.Endpoint.Disabled() {
		t.Errorf("leased %+v", lease)
	}
}

// What a dispatcher held when it crashed: it never says another word.
func TestALeaseThatRunsOutIsGivenToTheNext(t *testing.T) {
	s := newFixture(t)
	id := s.event(t)
	crashed := s.leaseFor(t, 30*time.Millisecond, 1)
	if len(crashed) != 1 {
		t.Fatal("nothing was due")
	}
	var taken []outbox.Lease
	await.Until(t, storetest.Timeout, "the event comes due again", func() bool {
		taken = s.leaseFor(t, time.Hour, 1)
		return len(taken) == 1
	})
	if taken[0].Event.ID != id {
		t.Errorf("leased %s, want %s", taken[0].Event.ID, id)
	}
	// It comes back from the dead, and is too late for everything.
	wantStale(t, s, crashed[0])
	if err := s.Delivered(t.Context(), taken[0], "here"); err != nil {
		t.Errorf("the one who holds it: %v", err)
	}
	wantStale(t, s, crashed[0])
}

func wantStale(t *testing.T, s fixture, stale outbox.Lease) {
	t.Helper()
	before := s.everything(t)
	for name, err := range map[string]error{
		"delivered":   s.Delivered(t.Context(), stale, "here"),
		"dropped":     s.Drop(t.Context(), stale),
		"dead letter": s.DeadLetter(t.Context(), stale, outbox.Details{Reason: "late"}),
		"failed":      second(s.Failed(t.Context(), stale, outbox.Failure{Details: outbox.Details{Reason: "late"}, Gone: true, Target: "t"})),
	} {
		if !errors.Is(err, outbox.ErrLeaseLost) {
			t.Errorf("%s with a stale lease: %v, want ErrLeaseLost", name, err)
		}
	}
	must(t, s.Defer(t.Context(), s.bucket(), outbox.Deferral{Lease: stale}))
	if after := s.everything(t); !slices.Equal(before, after) {
		t.Errorf("a stale lease changed\n%q\ninto\n%q", before, after)
	}
}

// everything is what Redis holds of events and endpoints, as text.
func (s fixture) everything(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, key := range s.redis.Keys(t.Context(), "*").Val() {
		if strings.Contains(key, ":rate:") {
			continue // it ends within a second
		}
		dump, err := s.redis.Dump(t.Context(), key).Result()
		must(t, err)
		all = append(all, key+" "+dump)
	}
	slices.Sort(all)
	return all
}

func second[T any](_ T, err error) error { return err }

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

func TestEventsComeInTheOrderInWhichTheyAreDue(t *testing.T) {
	s := newFixture(t)
	var ids []string
	for range 5 {
		ids = append(ids, s.event(t))
	}
	for i, id := range ids { // which may all be of one millisecond
		dueAt(t, s.redis, s.tag, id, time.UnixMilli(int64(1000+i)))
	}
	if got := idsOf(s.leaseFor(t, time.Hour, 3)); !slices.Equal(got, ids[:3]) {
		t.Errorf("leased %v of %v", got, ids)
	}
}

// One of them must not stand in the way of the others, now or ever.
func TestEventsThatCannotBeLeased(t *testing.T) {
	s := newFixture(t)
	ctx := t.Context()
	vanished, odd, foreign, unreadable, nameless := s.event(t), s.event(t), s.event(t), s.event(t), s.event(t)
	must(t, s.redis.Del(ctx, s.tag+"event:"+vanished, s.tag+"event:"+odd).Err())
	must(t, s.redis.Set(ctx, s.tag+"event:"+odd, "not a hash", 0).Err())
	must(t, s.redis.HSet(ctx, s.tag+"event:"+unreadable, "b", "1\tsession.cancelled\tsoon").Err())
	must(t, s.redis.HSet(ctx, s.tag+"event:"+nameless, "b", "one").Err())
	elsewhere := storetest.MerchantOf((s.bucket() + 1) % session.Buckets)
	must(t, s.redis.HSet(ctx, s.tag+"event:"+foreign, "m", elsewhere.MerchantID).Err())
	good := s.event(t)

	leased, err := s.Lease(ctx, s.bucket(), outbox.LeaseRequest{For: time.Hour, Limit: 10})
	must(t, err)
	if got := idsOf(leased.Leases); !slices.Equal(got, []string{good}) {
		t.Errorf("leased %v, want %s", got, good)
	}
	if !sameSet(leased.Undecodable, []string{foreign, unreadable, nameless}) {
		t.Errorf("unreadable are %v", leased.Undecodable)
	}
	if leased.Expired != 2 {
		t.Errorf("%d have expired, want 2", leased.Expired)
	}
	if n := s.redis.ZCard(ctx, s.tag+"queue").Val(); n != 1 {
		t.Errorf("%d events are queued, want one", n)
	}
	if _, there := s.dueIn(t, good); !there {
		t.Error("the good one is not in the queue")
	}
	if dead := s.redis.ZRange(ctx, s.tag+"dead", 0, -1).Val(); !sameSet(dead, []string{foreign, unreadable, nameless}) {
		t.Errorf("dead are %v", dead)
	}
}

// In a rolling upgrade dispatchers of both versions lease the same events.
func TestEventsOfANewerVersionAreNoDeadLetters(t *testing.T) {
	for desc, stored := range map[string]string{
		"a new kind":   "1\tsession.refunded\t1795253496000\tand what not",
		"a new format": "2\tsession.completed\t1795253496000\tof another form",
	} {
		t.Run(desc, func(t *testing.T) {
			s := newFixture(t)
			newer := s.event(t)
			must(t, s.redis.HSet(t.Context(), s.tag+"event:"+newer, "b", stored).Err())
			for range 2 { // it is due again as often as it is put off
				lease := s.one(t)
				if lease.Event.ID != newer || !lease.Unsupported || lease.Event.OccurredAt.IsZero() {
					t.Fatalf("leased %+v", lease)
				}
				must(t, s.Defer(t.Context(), s.bucket(), outbox.Deferral{Lease: lease}))
			}
			if dead := s.redis.ZRange(t.Context(), s.tag+"dead", 0, -1).Val(); len(dead) != 0 {
				t.Errorf("dead are %v", dead)
			}
		})
	}
}

func TestEventsThatArePutOff(t *testing.T) {
	s := newFixture(t)
	soon, later := s.event(t), s.event(t)
	leases := s.leaseFor(t, time.Hour, 10)
	byID := map[string]outbox.Lease{leases[0].Event.ID: leases[0], leases[1].Event.ID: leases[1]}
	must(t, s.redis.PExpire(t.Context(), s.tag+"event:"+later, time.Hour).Err())
	must(t, s.Defer(t.Context(), s.bucket(),
		outbox.Deferral{Lease: byID[soon]}, outbox.Deferral{Lease: byID[later], Delay: time.Minute}))

	if in, there := s.dueIn(t, later); !there || in > time.Minute || in < time.Minute-storetest.Timeout {
		t.Errorf("due in %s, want a minute", in)
	}
	if lease := s.one(t); lease.Event.ID != soon || lease.Attempts != 0 {
		t.Errorf("due at once is %s with %d attempts, want %s with none", lease.Event.ID, lease.Attempts, soon)
	}
	// However often it is put off, it has its own end.
	if left := s.redis.PTTL(t.Context(), s.tag+"event:"+later).Val(); left > time.Hour || left < time.Hour-storetest.Timeout {
		t.Errorf("the event is kept for another %s, want an hour", left)
	}
}

// A dispatcher that is not able to try the events of some merchants, however many, takes those of others. Another dispatcher finds everything as
// if the first one had not asked.
func TestLease_Blocked(t *testing.T) {
	s := newFixture(t)
	const blocked, limit = 12, 10
	room := map[string]int{"unknown": 0}
	var ids []string
	for range blocked {
		merchant := s
		merchant.asks = storetest.MerchantOf(s.bucket())
		ids = append(ids, merchant.event(t))
		room[merchant.asks.MerchantID] = 0
	}
	before := s.redis.ZRangeWithScores(t.Context(), s.tag+"due", 0, -1).Val()
	for n := range 3 {
		other := s.event(t)
		leased, err := s.Lease(t.Context(), s.bucket(), outbox.LeaseRequest{For: time.Hour, Limit: limit, Room: room})
		must(t, err)
		if got := idsOf(leased.Leases); !slices.Equal(got, []string{other}) || leased.More {
			t.Fatalf("round %d: leased %v, and there are more: %t; want only %s", n, got, leased.More, other)
		}
		must(t, s.Delivered(t.Context(), leased.Leases[0], "here"))
	}
	if after := s.redis.ZRangeWithScores(t.Context(), s.tag+"due", 0, -1).Val(); !slices.Equal(before, after) {
		t.Errorf("due were %v, and are %v", before, after)
	}
	if got := append(idsOf(s.leaseFor(t, time.Hour, limit)), idsOf(s.leaseFor(t, time.Hour, limit))...); !sameSet(got, ids) {
		t.Errorf("another dispatcher leased %v, want each of %v", got, ids)
	}
}

// What a dispatcher has no room for stays in Redis, and the others share what is left of the limit.
func TestLease_Room(t *testing.T) {
	s := newFixture(t)
	slow, other := s, s
	other.asks = storetest.MerchantOf(s.bucket())
	for range 9 {
		slow.event(t)
		other.event(t)
	}
	request := outbox.LeaseRequest{For: time.Hour, Limit: 10, Each: 6, Room: map[string]int{slow.asks.MerchantID: 1}}
	counts := map[string]int{}
	for round := range 3 {
		leased, err := s.Lease(t.Context(), s.bucket(), request)
		must(t, err)
		before := counts[other.asks.MerchantID]
		for _, lease := range leased.Leases {
			counts[lease.Event.MerchantID]++
		}
		if counts[slow.asks.MerchantID] != round+1 || counts[other.asks.MerchantID] > before+6 || !leased.More {
			t.Errorf("round %d: leased %v, more: %t; want one of the slow one in each, at most 6 of the other", round, counts, leased.More)
		}
	}
	if counts[other.asks.MerchantID] != 9 {
		t.Errorf("leased %v, want all 9 of the other one", counts)
	}
}

// Nobody knows whether an endpoint is disabled whose state cannot be read. Its events wait, as any other's are leased.
func TestLease_UnreadableEndpoint(t *testing.T) {
	for name, test := range map[string]struct {
		damage         func(ctx context.Context, s fixture, key string) error
		wantUnreadable bool
	}{
		"when it was disabled": {func(ctx context.Context, s fixture, key string) error {
			return s.redis.HSet(ctx, key, "disabled", "soon").Err()
		}, true},
		"not a hash": {func(ctx context.Context, s fixture, key string) error { return s.redis.Set(ctx, key, "x", 0).Err() }, true},
		"since when it fails": {func(ctx context.Context, s fixture, key string) error {
			return s.redis.HSet(ctx, key, "since", "soon").Err()
		}, false},
		"its last delivery": {func(ctx context.Context, s fixture, key string) error {
			return s.redis.HSet(ctx, key, "delivered", "soon").Err()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			for range 5 {
				s.event(t)
			}
			other := s
			other.asks = storetest.MerchantOf(s.bucket())
			other.event(t)
			must(t, test.damage(t.Context(), s, s.tag+"endpoint:"+s.asks.MerchantID))
			leased, err := s.Lease(t.Context(), s.bucket(), outbox.LeaseRequest{For: time.Hour, Limit: 64})
			must(t, err)
			if len(leased.Leases) != 6 || len(leased.Undecodable) != 0 {
				t.Fatalf("leased %d events, undecodable are %v", len(leased.Leases), leased.Undecodable)
			}
			for _, lease := range leased.Leases {
				if want := test.wantUnreadable && lease.Event.MerchantID == s.asks.MerchantID; lease.Endpoint.Unreadable != want {
					t.Errorf("leased %+v, want unreadable: %t", lease, want)
				}
			}
			if dead := s.redis.ZCard(t.Context(), s.tag+"dead").Val(); dead != 0 {
				t.Errorf("%d dead letters", dead)
			}
			if !test.wantUnreadable { // the attempt goes on as usual, and mends it
				for _, lease := range leased.Leases {
					must(t, s.Delivered(t.Context(), lease, "here"))
				}
			}
		})
	}
}
