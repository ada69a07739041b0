package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// A refund is owed until all of a refused payment went back. None is for an accepted payment, or one of test mode.
func TestRefundsOwed(t *testing.T) {
	server := redistest.Start(t)
	s, c, asks := open(t, server.URL()), client(t, server), merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	test := mustCreate(t, s, with(asks, inTestMode), newSession()).Session.ID
	settle := func(payment session.Payment) {
		must(t, second(s.Settle(t.Context(), id, by(rail, payment))))
	}
	owed := func(when string, want ...int64) {
		t.Helper()
		got, err := s.RefundsOwed(t.Context(), []time.Duration{24 * time.Hour, time.Hour, 0})
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	owed("at first", 0, 0, 0)
	settle(paid("card-1"))
	must(t, second(s.SettleTest(t.Context(), test, of(7, paid("card-2")))))
	owed("an accepted payment", 0, 0, 0)
	settle(paid("card-2"))
	settle(paid("card-2"))
	settle(of(7, paid("card-3")))
	must(t, second(s.SettleDeleted(t.Context(), mustCreate(t, s, asks, newSession()).Session.ID, paid("card-2"))))
	owed("refused payments", 0, 0, 3)

	key := merchantTag(asks.MerchantID) + "owed"
	members := c.ZRange(t.Context(), key, 0, -1).Val()
	now := time.Now()
	for i, age := range []time.Duration{2 * time.Hour, 25 * time.Hour, 31 * 24 * time.Hour} {
		must(t, c.ZAdd(t.Context(), key, goredis.Z{Score: float64(now.Add(-age).UnixMilli()), Member: members[i]}).Err())
	}
	owed("one whose session is gone", 1, 2, 2)
	settle(paid("card-4"))
	if n := c.ZCard(t.Context(), key).Val(); n != 3 {
		t.Errorf("%d are listed, want one less for its session is gone", n)
	}
	for _, member := range members {
		c.ZAdd(t.Context(), key, goredis.Z{Score: float64(now.Add(-2 * time.Hour).UnixMilli()), Member: member})
	}
	owed("all of them", 0, 3, 4)
	must(t, second(s.Refund(t.Context(), id, refunding("card-1", "r0", 1250))))
	must(t, second(s.Refund(t.Context(), id, refunding("card-2", "r1", 1249))))
	owed("a part went back", 0, 3, 4)
	must(t, second(s.Refund(t.Context(), id, refunding("card-2", "r2", 1))))
	owed("all of it went back", 0, 2, 3)
	if ttl := c.PTTL(t.Context(), key).Val(); ttl < 29*24*time.Hour {
		t.Errorf("the list ends in %s", ttl)
	}
}

// The list is an index: it fails no payment and no refund, and one that cannot be read counts nothing.
func TestRefundsOwed_Unreadable(t *testing.T) {
	server := redistest.Start(t)
	s, c, asks := open(t, server.URL()), client(t, server), merchant()
	must(t, c.Set(t.Context(), merchantTag(asks.MerchantID)+"owed", "text", 0).Err())
	id := mustCreate(t, s, asks, newSession()).Session.ID
	for _, payment := range []session.Payment{paid("card-1"), paid("card-2")} {
		must(t, second(s.Settle(t.Context(), id, by(rail, payment))))
	}
	must(t, second(s.Refund(t.Context(), id, refunding("card-2", "r1", 1250))))
	if got, err := s.RefundsOwed(t.Context(), []time.Duration{0}); err != nil || got[0] != 0 {
		t.Errorf("owed: %v, %v", got, err)
	}
	server.Stop()
	if got, err := s.RefundsOwed(t.Context(), []time.Duration{0}); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("without Redis: %v, %v", got, err)
	}
}

// In a Redis Cluster each bucket is counted at its server.
func TestRefundsOwed_Cluster(t *testing.T) {
	t.Parallel()
	s := open(t, "redis+cluster://"+startCluster(t)[0].Addr())
	for bucket := range 3 {
		id := mustCreate(t, s, merchantIn(session.Bucket(bucket*21)), newSession()).Session.ID
		must(t, second(s.Settle(t.Context(), id, of(7, paid("card-1")))))
	}
	if got, err := s.RefundsOwed(t.Context(), []time.Duration{time.Hour, 0}); err != nil || got[0] != 0 || got[1] != 3 {
		t.Errorf("owed: %v, %v; want 3", got, err)
	}
}
