package store_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestCheckRefusesAServerThatMayEvict(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	c := client(t, server)
	for policy, want := range map[string]error{
		"noeviction": nil, "allkeys-lru": redis.ErrEviction, "volatile-ttl": redis.ErrEviction, "volatile-lfu": redis.ErrEviction,
	} {
		if err := c.ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: Check = %v, want %v", policy, err, want)
		}
		if got, err := s.EvictionPolicy(t.Context()); got != policy || err != nil {
			t.Errorf("%s: EvictionPolicy = %s, %v", policy, got, err)
		}
	}
}

func TestCheckAcceptsAServerThatHidesItsPolicy(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server)
	// Without this right all else works.
	rights := slices.DeleteFunc(storetest.DocumentedRights(t), func(rule string) bool { return rule == "+info" })
	s := open(t, "redis://"+rights.User(t, c)+"@"+server.Addr()+"/0")
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if got, err := s.EvictionPolicy(t.Context()); got != "" || err != nil {
		t.Errorf("EvictionPolicy = %q, %v; want none", got, err)
	}
	assertRecovers(t, s)
	id := merchant().MerchantID
	for i := range store.MaxBlocks + 1 {
		addBlocked(t, s, id, map[string]int64{block(i): 1})
	}
	asks := merchant()
	must(t, second(s.Settle(t.Context(), mustCreate(t, s, asks, newSession()).Session.ID, paid("a"))))
	_, _, err := s.Cancel(t.Context(), asks, mustCreate(t, s, asks, newSession()).Session.ID)
	must(t, err)

	wrong := open(t, "redis://merchant-operator:wrong@"+server.Addr()+"/0")
	if err := wrong.Check(t.Context()); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("with a wrong password: Check = %v, want ErrUnavailable", err)
	}
}

// make run falls back to this embedded server when the machine has no redis-server.
func TestTheStoreWorksOnTheEmbeddedServer(t *testing.T) {
	server := miniredis.RunT(t)
	s := open(t, "redis://"+server.Addr())
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	assertRecovers(t, s)
	asks := merchant()
	wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	created := mustCreate(t, s, asks, wanted)
	for i := range store.MaxBlocks + 2 {
		addBlocked(t, s, asks.MerchantID, map[string]int64{block(i): 1})
	}
	if blocks, sum := blockedRequests(t, s, asks.MerchantID); len(blocks) < store.MaxBlocks || sum != store.MaxBlocks+2 {
		t.Errorf("%d blocks are kept, of %d requests", len(blocks), sum)
	}
	again := mustCreate(t, s, asks, wanted)
	if !again.Replayed || again.Mismatch || again.Session.ID != created.Session.ID {
		t.Errorf("a repeated Idempotency-Key: %+v", again)
	}
	if _, _, err := s.PublicSession(t.Context(), payer(), created.Session.ID); err != nil {
		t.Errorf("public read: %v", err)
	}
	if _, _, err := s.Cancel(t.Context(), asks, created.Session.ID); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if late, err := s.Settle(t.Context(), created.Session.ID, paid("a")); err != nil || !late.RefundRequired {
		t.Errorf("settle: %+v, %v", late, err)
	}
	expiring := mustCreate(t, s, asks, with(newSession(), short)).Session
	due(t, s, expiring)
	if swept := sweepAll(t, s, expiring.ID.Bucket(), 10); swept.Expired != 1 {
		t.Errorf("sweep: %+v", swept)
	}
	if recorded, err := s.RecordRotation(t.Context(), rotationOf(asks, 2), rotatedAt, feed.History{}); err != nil || !recorded {
		t.Errorf("record a rotation: %v, %v", recorded, err)
	}
	if err := s.WriteOverride(t.Context(), store.Override{KeyRef: store.KeyRef{MerchantID: asks.MerchantID, KeyID: asks.KeyID}, Order: published.Order{Revision: 9}}); err != nil {
		t.Errorf("write an override: %v", err)
	}
	if _, err := s.Admit(t.Context(), asks); !errors.Is(err, store.ErrKeyRejected) {
		t.Errorf("a revoked key: %v", err)
	}
}
