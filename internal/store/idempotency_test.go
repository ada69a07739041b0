package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

func TestARepeatedIdempotencyKeyReturnsTheOriginal(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	original := mustCreate(t, s, asks, wanted)

	again := mustCreate(t, s, asks, wanted)
	if diff := cmp.Diff(store.Created{Session: original.Session, Replayed: true}, again, sameSession); diff != "" {
		t.Errorf("the same charge (-want +got):\n%s", diff)
	}

	other := with(wanted, func(n *store.NewSession) { n.Charge.AmountCents++; n.MerchantName = "Renamed"; n.Lifetime = time.Hour })
	again = mustCreate(t, s, asks, other)
	if diff := cmp.Diff(store.Created{Session: original.Session, Replayed: true, Mismatch: true}, again, sameSession); diff != "" {
		t.Errorf("another charge (-want +got):\n%s", diff)
	}

	other.RejectMismatch = true
	admitted, again, err := s.CreateSession(t.Context(), asks, other)
	if !errors.Is(err, store.ErrIdempotencyMismatch) || !cmp.Equal(again, store.Created{}, sameSession) {
		t.Errorf("another charge, rejected: %+v, %v; want ErrIdempotencyMismatch", again, err)
	}
	if admitted.Now.IsZero() || admitted.Policy != asks.Limit || admitted.Remaining >= asks.Limit.Burst {
		t.Errorf("the quota is not told with a mismatch: %+v", admitted)
	}

	wanted.RejectMismatch = true
	if again = mustCreate(t, s, asks, wanted); !again.Replayed || again.Session.ID != original.Session.ID {
		t.Error("the same charge was not replayed after another one had been rejected")
	}
}

func TestIdempotencyKeysBelongToTheMerchant(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	original := mustCreate(t, s, asks, wanted)

	otherKey := with(asks, func(a *store.Admission) { a.KeyID, a.Digest, a.Order.Revision = newID(), newDigest(), 1 })
	if again := mustCreate(t, s, otherKey, wanted); !again.Replayed || again.Session.ID != original.Session.ID {
		t.Error("another API key of the merchant made a second charge")
	}
	if foreign := mustCreate(t, s, merchant(), wanted); foreign.Replayed || foreign.Session.ID == original.Session.ID {
		t.Error("another merchant's Idempotency-Key was answered with this merchant's session")
	}
	wanted.Idempotency = idempotencyKey(t, "order-1002")
	if next := mustCreate(t, s, asks, wanted); next.Replayed {
		t.Error("another Idempotency-Key was replayed")
	}
	if next := mustCreate(t, s, asks, newSession()); next.Replayed {
		t.Error("a charge without Idempotency-Key was replayed")
	}
}

func TestConcurrentCreatesWithOneKeyMakeOneSession(t *testing.T) {
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	for _, n := range []int{24, 200} {
		asks := merchant()
		wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
		created := make([]store.Created, n)
		failures := make([]error, n)
		start := make(chan struct{})
		var callers sync.WaitGroup
		for i := range n {
			callers.Go(func() {
				<-start
				_, created[i], failures[i] = replicas[i%2].CreateSession(t.Context(), asks, wanted)
			})
		}
		close(start)
		callers.Wait()

		made := 0
		for i := range n {
			if failures[i] != nil {
				t.Fatalf("caller %d of %d: %v", i, n, failures[i])
			}
			if !created[i].Replayed {
				made++
			}
			if diff := cmp.Diff(created[0].Session, created[i].Session, sameSession); diff != "" {
				t.Fatalf("callers 0 and %d of %d got different sessions:\n%s", i, n, diff)
			}
		}
		if made != 1 {
			t.Errorf("%d of %d callers created a session, want one", made, n)
		}
		if keys := keysOf(t, asks, "session:*"); len(keys) != 1 {
			t.Errorf("%d callers left %d sessions", n, len(keys))
		}
	}
}

func TestARefusedCreateDoesNotUseTheIdempotencyKeyUp(t *testing.T) {
	s := open(t, shared.URL())
	one := ratelimit.Policy{RequestsPerSecond: 1, Burst: 1}
	for desc, test := range map[string]struct {
		refuse func(*store.Admission)
		want   error
	}{
		"a dead key":           {func(a *store.Admission) { a.Live = false }, store.ErrKeyRejected},
		"an inactive merchant": {func(a *store.Admission) { a.Inactive = true }, store.ErrMerchantNotActive},
		"over the limit":       {func(a *store.Admission) { a.Limit = one }, store.ErrRateLimited},
	} {
		asks := merchant()
		refused := with(asks, test.refuse)
		var wanted store.NewSession
		passed := 0
		eventually(t, desc+" is refused", func() bool {
			wanted = with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, fmt.Sprintf("order-%d", passed)) })
			_, created, err := s.CreateSession(t.Context(), refused, wanted)
			if err == nil && errors.Is(test.want, store.ErrRateLimited) {
				passed++
				return false
			}
			if !errors.Is(err, test.want) || !cmp.Equal(created, store.Created{}, sameSession) {
				t.Fatalf("%s: %+v, %v; want %v", desc, created, err, test.want)
			}
			return true
		})
		if len(keysOf(t, asks, "session:*")) != passed || len(keysOf(t, asks, "idem:"+asks.MerchantID+":*")) != passed {
			t.Errorf("%s left a session or an Idempotency-Key behind", desc)
		}
		corrected := with(wanted, func(n *store.NewSession) { n.Charge.AmountCents = 999 })
		if created := mustCreate(t, s, asks, corrected); created.Replayed || created.Mismatch || created.Session.Charge.AmountCents != 999 {
			t.Errorf("%s: the next try was answered with %+v", desc, created)
		}
	}
}
