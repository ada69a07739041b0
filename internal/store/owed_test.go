package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// A refund is owed until all of a refused payment went back. None is for an accepted payment, or one of test mode.
func TestCountOwed(t *testing.T) {
	server := redistest.Start(t)
	s, c, asks := open(t, server.URL()), client(t, server), merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	test := mustCreate(t, s, with(asks, inTestMode), newSession()).Session.ID
	settle := func(payment session.Payment) {
		must(t, second(s.Settle(t.Context(), id, by(rail, payment))))
	}
	owed := func(when string, want ...int64) {
		t.Helper()
		got, err := s.CountOwed(t.Context(), []time.Duration{24 * time.Hour, time.Hour, 0})
		must(t, err)
		if diff := cmp.Diff(want, got.Payments); diff != "" {
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
func TestCountOwed_Unreadable(t *testing.T) {
	server := redistest.Start(t)
	s, c, asks := open(t, server.URL()), client(t, server), merchant()
	must(t, c.Set(t.Context(), merchantTag(asks.MerchantID)+"owed", "text", 0).Err())
	id := mustCreate(t, s, asks, newSession()).Session.ID
	for _, payment := range []session.Payment{paid("card-1"), paid("card-2")} {
		must(t, second(s.Settle(t.Context(), id, by(rail, payment))))
	}
	must(t, second(s.Refund(t.Context(), id, refunding("card-2", "r1", 1250))))
	if got, err := s.CountOwed(t.Context(), []time.Duration{0}); err != nil || got.Payments[0] != 0 {
		t.Errorf("owed: %v, %v", got, err)
	}
	must(t, c.Set(t.Context(), merchantTag(asks.MerchantID)+"refunds:"+string(rail), "text", 0).Err())
	if page, err := s.Owed(t.Context(), rail, store.OwedPlace{}, 10); err != nil || !page.Incomplete || len(page.Refunds) != 0 {
		t.Errorf("the rail reads %+v, %v; want that some is missing", page, err)
	}
	server.Stop()
	if got, err := s.CountOwed(t.Context(), []time.Duration{0}); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("without Redis: %v, %v", got, err)
	}
}

// A merchant reads how many of its own requests have waited for long, and of which session the oldest is.
func TestOverdueRequests(t *testing.T) {
	server := redistest.Start(t)
	s, c, asks := open(t, server.URL()), client(t, server), merchant()
	account := store.Account{MerchantID: asks.MerchantID}
	var ids []session.ID
	var refs []string
	for range 3 {
		id := paidSession(t, s, asks)
		_, got, err := s.RequestRefund(t.Context(), asks, id, asking(t, "a", 50))
		must(t, err)
		ids, refs = append(ids, id), append(refs, got.ID)
	}
	other := merchantIn(session.MerchantBucket(asks.MerchantID))
	must(t, third(s.RequestRefund(t.Context(), other, paidSession(t, s, other), asking(t, "a", 50))))
	expect := func(when string, count int64, oldest session.ID) {
		t.Helper()
		got, err := s.OverdueRequests(t.Context(), account, 7*24*time.Hour)
		if err != nil || got.Count != count || got.Oldest != oldest {
			t.Errorf("%s: %+v, %v; want %d, the oldest of %s", when, got, err, count, oldest)
		}
	}
	expect("new ones", 0, session.ID{})
	key := merchantTag(asks.MerchantID) + "requested:" + ids[0].Account()
	for i, age := range []time.Duration{6 * 24 * time.Hour, 8 * 24 * time.Hour, 9 * 24 * time.Hour} {
		must(t, c.ZAdd(t.Context(), key, goredis.Z{Score: float64(time.Now().Add(-age).UnixMilli()), Member: ids[i].String() + " " + refs[i]}).Err())
	}
	expect("two of more than a week", 2, ids[2])
	must(t, second(s.Refund(t.Context(), ids[2], refunding("card-1", refs[2], 50))))
	expect("the oldest was confirmed", 1, ids[1])
	must(t, second(s.RejectRefund(t.Context(), ids[1], store.Rejection{Rail: rail, PaymentRef: "card-1", RefundID: refs[1]})))
	expect("the other one was rejected", 0, session.ID{})
	must(t, c.Set(t.Context(), key, "no list", 0).Err())
	expect("a list that cannot be read", 0, session.ID{})
}

// In a Redis Cluster each bucket is counted at its server.
func TestCountOwed_Cluster(t *testing.T) {
	t.Parallel()
	s := open(t, "redis+cluster://"+startCluster(t)[0].Addr())
	for bucket := range 3 {
		id := mustCreate(t, s, merchantIn(session.Bucket(bucket*21)), newSession()).Session.ID
		must(t, second(s.Settle(t.Context(), id, of(7, paid("card-1")))))
	}
	if got, err := s.CountOwed(t.Context(), []time.Duration{time.Hour, 0}); err != nil || got.Payments[0] != 0 || got.Payments[1] != 3 {
		t.Errorf("owed: %v, %v; want 3", got, err)
	}
}
