package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/apiserver/ratelimit"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

var sameSession = cmp.AllowUnexported(session.ID{})

func TestACreatedSessionIsReadAsItWasAnswered(t *testing.T) {
	s := open(t, shared.URL())
	for desc, charge := range map[string]session.Charge{
		"the least": {AmountCents: 1},
		"everything": {
			AmountCents: 10_000_000, OrderRef: "1001", TaxCents: new(int64(10_000_000)), TipCents: new(int64(0)), CustomerEmail: "ada@example.com",
		},
		"numbers beyond a float's digits": {
			AmountCents: 9_007_199_254_740_993, TaxCents: new(int64(1<<63 - 1)), TipCents: new(int64(123_456_789_012_345_678)),
		},
		"text of any kind":              {AmountCents: 1, OrderRef: "\"'\\ %s\t 日本 🍕 {b00} nil\r\n\x00\xff", CustomerEmail: "-"},
		"text that looks like a number": {AmountCents: 1, OrderRef: "1e400", CustomerEmail: "false"},
	} {
		t.Run(desc, func(t *testing.T) {
			asks := merchant()
			wanted := with(newSession(), func(n *store.NewSession) { n.Charge, n.MerchantName = charge, "Café \"Ω\"\n" })
			admitted, created, err := s.CreateSession(t.Context(), asks, wanted)
			if err != nil {
				t.Fatal(err)
			}
			createdAt := admitted.Now.Truncate(time.Millisecond)
			want := session.Session{
				ID: created.Session.ID, MerchantID: asks.MerchantID, MerchantName: wanted.MerchantName, Status: session.Pending,
				Charge: charge, CreatedAt: createdAt, ExpiresAt: createdAt.Add(15 * time.Minute),
			}
			if diff := cmp.Diff(store.Created{Session: want}, created, sameSession); diff != "" {
				t.Errorf("created (-want +got):\n%s", diff)
			}
			if created.Session.ID.Bucket() != session.BucketOf(asks.MerchantID) {
				t.Error("the session is not in its merchant's bucket")
			}
			_, read, err := s.Session(t.Context(), asks, created.Session.ID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, read, sameSession); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPayersSeeThreeFields(t *testing.T) {
	s := open(t, shared.URL())
	created := mustCreate(t, s, merchant(), newSession())
	_, public, err := s.PublicSession(t.Context(), payer(), created.Session.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := store.PublicSession{MerchantName: "Acme Coffee", AmountCents: 1250, Status: session.Pending}
	if public != want {
		t.Errorf("public read: %+v, want %+v", public, want)
	}
}

func payer() store.PublicAdmission {
	return store.PublicAdmission{Subject: "ip:" + newID(), Limit: ratelimit.Policy{RequestsPerSecond: 10_000, Burst: 100_000}}
}

func TestSessionsThatAreNotTheCallersAreNotFound(t *testing.T) {
	s := open(t, shared.URL())
	owner := merchant()
	neighbour := merchant() // in the same bucket, where the key alone would find the session
	for session.BucketOf(neighbour.MerchantID) != session.BucketOf(owner.MerchantID) {
		neighbour = merchant()
	}
	stranger := merchant()
	for session.BucketOf(stranger.MerchantID) == session.BucketOf(owner.MerchantID) {
		stranger = merchant()
	}
	own := mustCreate(t, s, owner, newSession()).Session.ID
	for desc, test := range map[string]struct {
		asks store.Admission
		id   session.ID
	}{
		"of a merchant in the same bucket": {neighbour, own},
		"of a merchant in another bucket":  {stranger, own},
		"never made":                       {owner, session.NewID(own.Bucket())},
		"of another bucket":                {owner, session.NewID((own.Bucket() + 1) % session.Buckets)},
		"no id at all":                     {owner, session.ID{}},
	} {
		admitted, read, err := s.Session(t.Context(), test.asks, test.id)
		if !errors.Is(err, store.ErrNotFound) || !cmp.Equal(read, session.Session{}, sameSession) {
			t.Errorf("%s: %+v, %v; want ErrNotFound", desc, read, err)
		}
		if admitted.Remaining != test.asks.Limit.Burst-1 && test.asks.MerchantID != owner.MerchantID {
			t.Errorf("%s: remaining %d: the request must be counted, and its quota told", desc, admitted.Remaining)
		}
		if admitted.Now.IsZero() {
			t.Errorf("%s: the time is not told", desc)
		}
	}
	for desc, id := range map[string]session.ID{"never made": session.NewID(0), "no id at all": {}} {
		asks := payer()
		quota, read, err := s.PublicSession(t.Context(), asks, id)
		if !errors.Is(err, store.ErrNotFound) || read != (store.PublicSession{}) || quota.Remaining != asks.Limit.Burst-1 {
			t.Errorf("publicly, %s: %+v, %+v, %v; want ErrNotFound and a quota", desc, quota, read, err)
		}
	}
}

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

	otherKey := with(asks, func(a *store.Admission) { a.KeyID, a.Digest, a.Generation = newID(), newDigest(), 1 })
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
	replicas := []*store.Store{open(t, shared.URL()), open(t, shared.URL())}
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
		"a dead key":         {func(a *store.Admission) { a.Live = false }, store.ErrKeyRejected},
		"a blocked merchant": {func(a *store.Admission) { a.Blocked = true }, store.ErrMerchantBlocked},
		"over the limit":     {func(a *store.Admission) { a.Limit = one }, store.ErrRateLimited},
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
