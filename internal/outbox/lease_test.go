package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestLease_OneHolder(t *testing.T) {
	s := newFixture(t)
	ids := []string{s.event(t), s.event(t), s.event(t)}
	first, second := s.leaseFor(t, time.Hour, 2), s.leaseFor(t, time.Hour, 2)
	if got := append(leaseIDs(first), leaseIDs(second)...); !sameSet(got, ids) {
		t.Errorf("leased %v, want each of %v once", got, ids)
	}
	if again := s.leaseFor(t, time.Hour, 2); len(again) != 0 {
		t.Errorf("leased a second time: %v", leaseIDs(again))
	}
	lease := first[0]
	if lease.Event.Kind != v1alpha1.EventSessionCancelled || lease.Event.MerchantID != s.asks.MerchantID ||
		lease.Event.Session.Status != session.Cancelled || lease.Attempts != 0 || lease.Endpoint.Disabled() {
		t.Errorf("leased %+v", lease)
	}
}

// A dispatcher that crashes keeps no event for longer than its lease.
func TestLease_ExpiresToNextHolder(t *testing.T) {
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
	// The crashed one comes back, and is too late for everything.
	checkStale(t, s, crashed[0])
	if err := s.RecordDelivery(t.Context(), taken[0], outbox.Target{ID: "here"}); err != nil {
		t.Errorf("with the valid lease: %v", err)
	}
	checkStale(t, s, crashed[0])
}

func checkStale(t *testing.T, s fixture, stale outbox.Lease) {
	t.Helper()
	before := s.everything(t)
	for name, err := range map[string]error{
		"delivered":   s.RecordDelivery(t.Context(), stale, outbox.Target{ID: "here"}),
		"dropped":     s.Drop(t.Context(), stale),
		"dead letter": s.DeadLetter(t.Context(), stale, outbox.Details{Reason: "late"}),
		"failed":      second(s.RecordFailure(t.Context(), stale, outbox.Failure{Details: outbox.Details{Reason: "late"}, Gone: true, Target: outbox.Target{ID: "t"}})),
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

func TestLease_DueOrder(t *testing.T) {
	s := newFixture(t)
	var ids []string
	for range 5 {
		ids = append(ids, s.event(t))
	}
	for i, id := range ids { // which may all be of one millisecond
		dueAt(t, s.redis, s.tag, id, time.UnixMilli(int64(1000+i)))
	}
	if got := leaseIDs(s.leaseFor(t, time.Hour, 3)); !slices.Equal(got, ids[:3]) {
		t.Errorf("leased %v of %v", got, ids)
	}
}

// One unreadable event does not block the others.
func TestLease_UnreadableEvents(t *testing.T) {
	s := newFixture(t)
	ctx := t.Context()
	vanished, odd, foreign, unreadable, nameless := s.event(t), s.event(t), s.event(t), s.event(t), s.event(t)
	must(t, s.redis.Del(ctx, s.tag+"event:"+vanished, s.tag+"event:"+odd).Err())
	must(t, s.redis.Set(ctx, s.tag+"event:"+odd, "not a hash", 0).Err())
	must(t, s.redis.HSet(ctx, s.tag+"event:"+unreadable, "b", "1\tsession.cancelled\tsoon").Err())
	must(t, s.redis.HSet(ctx, s.tag+"event:"+nameless, "b", "one").Err())
	elsewhere := storetest.MerchantIn((s.bucket() + 1) % session.Buckets)
	must(t, s.redis.HSet(ctx, s.tag+"event:"+foreign, "m", elsewhere.MerchantID).Err())
	good := s.event(t)

	leased, err := s.Lease(ctx, s.bucket(), outbox.LeaseRequest{For: time.Hour, Limit: 10})
	must(t, err)
	if got := leaseIDs(leased.Leases); !slices.Equal(got, []string{good}) {
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
func TestLease_NewerVersion(t *testing.T) {
	for desc, stored := range map[string]string{
		"a new kind":   "1\tsession.refunded\t1795253496000\tand what not",
		"a new format": "2\tsession.completed\t1795253496000\tof another form",
	} {
		t.Run(desc, func(t *testing.T) {
			s := newFixture(t)
			newer := s.event(t)
			must(t, s.redis.HSet(t.Context(), s.tag+"event:"+newer, "b", stored).Err())
			for range 2 { // it is due again after each deferral
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

func TestDefer(t *testing.T) {
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
	// A deferral does not prolong the life of the event.
	if left := s.redis.PTTL(t.Context(), s.tag+"event:"+later).Val(); left > time.Hour || left < time.Hour-storetest.Timeout {
		t.Errorf("the event is kept for another %s, want an hour", left)
	}
}

// A dispatcher that cannot try the events of some merchants, however many, takes those of others. Another dispatcher finds everything unchanged.
func TestLease_Blocked(t *testing.T) {
	s := newFixture(t)
	const blocked, limit = 12, 10
	room := map[string]int{"unknown": 0}
	var ids []string
	for range blocked {
		merchant := s
		merchant.asks = storetest.MerchantIn(s.bucket())
		ids = append(ids, merchant.event(t))
		room[merchant.asks.MerchantID] = 0
	}
	before := s.redis.ZRangeWithScores(t.Context(), s.tag+"due", 0, -1).Val()
	for n := range 3 {
		other := s.event(t)
		leased, err := s.Lease(t.Context(), s.bucket(), outbox.LeaseRequest{For: time.Hour, Limit: limit, Room: room})
		must(t, err)
		if got := leaseIDs(leased.Leases); !slices.Equal(got, []string{other}) || leased.More {
			t.Fatalf("round %d: leased %v, and there are more: %t; want only %s", n, got, leased.More, other)
		}
		must(t, s.RecordDelivery(t.Context(), leased.Leases[0], outbox.Target{ID: "here"}))
	}
	if after := s.redis.ZRangeWithScores(t.Context(), s.tag+"due", 0, -1).Val(); !slices.Equal(before, after) {
		t.Errorf("due were %v, and are %v", before, after)
	}
	if got := append(leaseIDs(s.leaseFor(t, time.Hour, limit)), leaseIDs(s.leaseFor(t, time.Hour, limit))...); !sameSet(got, ids) {
		t.Errorf("another dispatcher leased %v, want each of %v", got, ids)
	}
}

// A lease writes its entry when it begins and when it ends, so the entry is short.
func TestLease_ShortEntry(t *testing.T) {
	s := newFixture(t)
	id := s.event(t)
	s.one(t)
	entry, _, _ := storetest.Queued(t, s.redis, s.tag, id)
	fields := strings.Split(entry, ":")
	if len(fields) != 5 || fields[3] != "a test" || len(fields[4]) != 8 {
		t.Errorf("the leased entry is %q, want a token of 8 characters", entry)
	}
}

// What a dispatcher has no room for stays in Redis, and the others share what is left of the limit.
func TestLease_Room(t *testing.T) {
	s := newFixture(t)
	slow, other := s, s
	other.asks = storetest.MerchantIn(s.bucket())
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

// Whether an endpoint is disabled is not known if its state cannot be read. Its events wait; those of others are leased.
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
			other.asks = storetest.MerchantIn(s.bucket())
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
			if !test.wantUnreadable { // the attempt goes on as usual, and repairs it
				for _, lease := range leased.Leases {
					must(t, s.RecordDelivery(t.Context(), lease, outbox.Target{ID: "here"}))
				}
			}
		})
	}
}

// Events of both modes have their turns like those of two merchants: a backlog of tests delays nothing live.
func TestLease_TestModeHasOwnQueue(t *testing.T) {
	s := newFixture(t)
	test := s.inTestMode()
	for range 5 {
		test.event(t)
	}
	live := s.event(t)
	leased, err := s.Lease(t.Context(), s.bucket(), outbox.LeaseRequest{For: time.Hour, Limit: 4})
	if err != nil || !slices.Contains(leaseIDs(leased.Leases), live) {
		t.Errorf("of 5 tests and then one live event, these come first: %v, %v", leaseIDs(leased.Leases), err)
	}
	states, err := s.Endpoints(t.Context(), s.bucket(), s.asks.MerchantID)
	if err != nil || len(states.States) != 1 || states.States[0].Pending != 1 {
		t.Errorf("of one live event are pending: %+v, %v", states, err)
	}
}

// One merchant has thousands of events due, for its endpoint hangs. Its neighbour in the bucket has one.
func TestLease_NeighbourHasBacklog(t *testing.T) {
	busy := newFixture(t)
	for range 3000 {
		busy.event(t)
	}
	const limit = 64
	first := busy.leaseFor(t, time.Hour, limit)
	if len(first) != limit {
		t.Fatalf("alone it gets %d events, want the whole limit of %d", len(first), limit)
	}
	for round := range 5 { // each time it has had its turn, and has thousands left
		neighbour := busy
		neighbour.asks = storetest.MerchantIn(busy.bucket())
		want := neighbour.event(t)
		leased, err := busy.Lease(t.Context(), busy.bucket(), outbox.LeaseRequest{For: time.Hour, Limit: limit})
		must(t, err)
		if !leased.More || len(leased.Leases) < limit/2 {
			t.Errorf("round %d: leased %d events, more: %t; want a share for the backlog", round, len(leased.Leases), leased.More)
		}
		if ids := leaseIDs(leased.Leases); !slices.Contains(ids, want) {
			t.Errorf("round %d: the neighbour's only event is not among the %d leased", round, len(ids))
		}
	}
}

// More merchants with a backlog than a lease has places: each has its turn before any has a second one, also the last to come.
func TestLease_MerchantsTakeTurns(t *testing.T) {
	s := newFixture(t)
	const merchants, limit = 12, 4
	for range merchants {
		s.asks = storetest.MerchantIn(s.bucket())
		for range 5 {
			s.event(t)
		}
	}
	turns := map[string]int{}
	for range merchants / limit {
		for _, lease := range s.leaseFor(t, time.Hour, limit) {
			turns[lease.Event.MerchantID]++
		}
	}
	if len(turns) != merchants {
		t.Errorf("%d of %d merchants had their turn in the first round: %v", len(turns), merchants, turns)
	}
	last := s
	last.asks = storetest.MerchantIn(s.bucket())
	id := last.event(t)
	var seen []string
	for range merchants/limit + 1 {
		seen = append(seen, leaseIDs(s.leaseFor(t, time.Hour, limit))...)
	}
	if !slices.Contains(seen, id) {
		t.Error("the last merchant had no turn in the next round")
	}
}

// Whatever happens to events, a poll finds work exactly while there is some.
func TestQueue_TurnFollowsFirstEvent(t *testing.T) {
	s := newFixture(t)
	turn := func() (time.Time, bool) {
		t.Helper()
		score, err := s.redis.ZScore(t.Context(), s.tag+"due", s.asks.MerchantID).Result()
		if err != nil {
			return time.Time{}, false
		}
		return time.UnixMilli(int64(score)), true
	}
	wantTurn := func(when, first string) {
		t.Helper()
		at, there := turn()
		_, want, queued := storetest.Queued(t, s.redis, s.tag, first)
		if there != queued || !at.Equal(want) {
			t.Errorf("%s: its turn is at %s (%t), its first event due at %s (%t)", when, at, there, want, queued)
		}
	}
	first, second := s.event(t), s.event(t)
	dueAt(t, s.redis, s.tag, first, time.UnixMilli(1_000))
	lease := s.leaseFor(t, time.Hour, 1)[0]
	if lease.Event.ID != first {
		t.Fatalf("leased %s, want %s", lease.Event.ID, first)
	}
	if at, there := turn(); !there || at.After(s.redis.Time(t.Context()).Val()) {
		t.Errorf("with another event due its turn is at %s", at)
	}
	other := s.leaseFor(t, 2*time.Hour, 1)[0]
	wantTurn("both leased", first)
	must(t, s.RecordDelivery(t.Context(), lease, outbox.Target{ID: "here"}))
	wantTurn("the first delivered", second)
	must(t, s.Defer(t.Context(), s.bucket(), outbox.Deferral{Lease: other, Delay: time.Minute}))
	wantTurn("the second deferred", second)
	dueAt(t, s.redis, s.tag, second, time.UnixMilli(1_000))
	_, err := s.RecordFailure(t.Context(), s.one(t), outbox.Failure{Details: outbox.Details{Reason: "dns"}, Retry: 24 * time.Hour, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour})
	must(t, err)
	wantTurn("the second failed", second)
	third := s.event(t)
	wantTurn("a third recorded", third)
	must(t, s.DeadLetter(t.Context(), s.one(t), outbox.Details{Reason: "dns"}))
	wantTurn("the third a dead letter", second)
	dueAt(t, s.redis, s.tag, second, time.UnixMilli(1_000))
	must(t, s.Drop(t.Context(), s.one(t)))
	if at, there := turn(); there {
		t.Errorf("with nothing queued it has a turn at %s", at)
	}
	if n := s.redis.Exists(t.Context(), s.tag+"queue", s.tag+"due").Val(); n != 0 {
		t.Errorf("%d keys are left of an empty queue", n)
	}
}
