package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// dueAt sets the time of an event, and of its merchant's turn.
func dueAt(t testing.TB, c *goredis.Client, tag, id string, at time.Time) {
	t.Helper()
	member, _, there := storetest.Queued(t, c, tag, id)
	if !there {
		t.Fatal("not in the queue:", id)
	}
	words := strings.Split(member, ":")
	words[1] = fmt.Sprintf("%013d", at.UnixMilli())
	must(t, c.ZRem(t.Context(), tag+"queue", member).Err())
	must(t, c.ZAdd(t.Context(), tag+"queue", goredis.Z{Member: strings.Join(words, ":")}).Err())
	must(t, c.ZAdd(t.Context(), tag+"due", goredis.Z{Score: float64(at.UnixMilli()), Member: words[0]}).Err())
}

// One merchant has thousands of events due, for its endpoint hangs. Its neighbour in the bucket has one.
func TestABacklogDelaysNoOtherMerchantOfItsBucket(t *testing.T) {
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
		neighbour.asks = storetest.MerchantOf(busy.bucket())
		want := neighbour.event(t)
		leased, err := busy.Lease(t.Context(), busy.bucket(), outbox.LeaseRequest{For: time.Hour, Limit: limit})
		must(t, err)
		if !leased.More || len(leased.Leases) < limit/2 {
			t.Errorf("round %d: leased %d events, more: %t; want a share for the backlog", round, len(leased.Leases), leased.More)
		}
		if ids := idsOf(leased.Leases); !slices.Contains(ids, want) {
			t.Errorf("round %d: the neighbour's only event is not among the %d leased", round, len(ids))
		}
	}
}

// More merchants with a backlog than a lease has places: each has its turn before any has a second one, and so does one who comes last.
func TestMerchantsWithABacklogTakeTurns(t *testing.T) {
	s := newFixture(t)
	const merchants, limit = 12, 4
	for range merchants {
		s.asks = storetest.MerchantOf(s.bucket())
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
	last.asks = storetest.MerchantOf(s.bucket())
	id := last.event(t)
	var seen []string
	for range merchants/limit + 1 {
		seen = append(seen, idsOf(s.leaseFor(t, time.Hour, limit))...)
	}
	if !slices.Contains(seen, id) {
		t.Error("who came last had no turn in the next round")
	}
}

// Whatever becomes of events, a look is as right as before: it says so while there is work, and not a moment longer.
func TestTheTurnOfAMerchantFollowsItsFirstEvent(t *testing.T) {
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
	must(t, s.Delivered(t.Context(), lease, "here"))
	wantTurn("the first delivered", second)
	must(t, s.Defer(t.Context(), s.bucket(), outbox.Deferral{Lease: other, Delay: time.Minute}))
	wantTurn("the second put off", second)
	dueAt(t, s.redis, s.tag, second, time.UnixMilli(1_000))
	_, err := s.Failed(t.Context(), s.one(t), outbox.Failure{Details: outbox.Details{Reason: "dns"}, Retry: 24 * time.Hour, Target: "here", FailingLimit: time.Hour})
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
