package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestCreateSession(t *testing.T) {
	s := storetest.OpenWith(t, shared.URL(), store.Options{Receipts: true})
	for desc, charge := range map[string]session.Charge{
		"the least": {AmountCents: 1},
		"everything": {
			AmountCents: 10_000_000, OrderRef: "1001", TaxCents: new(int64(10_000_000)), TipCents: new(int64(0)), CustomerEmail: "ada@example.com",
		},
		"numbers beyond a float's digits": {
			AmountCents: 9_007_199_254_740_993, TaxCents: new(int64(1<<63 - 1)), TipCents: new(int64(123_456_789_012_345_678)),
		},
		"text of any kind":              {AmountCents: 1, OrderRef: "\"'\\ %s\t 日本 🍕 {b00m} nil\r\n\x00", CustomerEmail: "-"},
		"text that looks like a number": {AmountCents: 1, OrderRef: "1e400", CustomerEmail: "false"},
	} {
		t.Run(desc, func(t *testing.T) {
			asks := merchant()
			request := with(newSession(), func(n *store.NewSession) { n.Charge, n.MerchantName = charge, "Café \"Ω\"\n" })
			admitted, created, err := s.CreateSession(t.Context(), asks, request)
			if err != nil {
				t.Fatal(err)
			}
			createdAt := admitted.Now.Truncate(time.Millisecond)
			want := session.Session{
				ID: created.Session.ID, MerchantID: asks.MerchantID, MerchantName: request.MerchantName, KeyID: asks.KeyID,
				Status: session.Pending, Currency: request.Currency,
				Charge: charge, CreatedAt: createdAt, ExpiresAt: createdAt.Add(15 * time.Minute),
			}
			if diff := cmp.Diff(store.Created{Session: want}, created, sameSession); diff != "" {
				t.Errorf("created (-want +got):\n%s", diff)
			}
			if created.Session.ID.Bucket() != session.MerchantBucket(asks.MerchantID) {
				t.Error("the session is not in its merchant's bucket")
			}
			story, err := s.ReadStory(t.Context(), created.Session.ID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, story.Session, sameSession); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
			_, read, err := s.Session(t.Context(), asks, created.Session.ID)
			if err != nil {
				t.Fatal(err)
			}
			want.Charge.CustomerEmail = "" // no merchant reads it
			if diff := cmp.Diff(want, read, sameSession); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
		})
	}
}

// Name and order stand behind each other in one field: none may be taken for a part of the other.
func TestCreateSession_AnyText(t *testing.T) {
	s := open(t, shared.URL())
	long := strings.Repeat("ö", 255)
	for _, words := range [][2]string{
		{"Acme", ""}, {"Acme ", " 1001"}, {"7 Acme", "4 1001"}, {" ", "-"}, {"Café\n", "é"}, {"\x00", "%d"}, {long, long}, {"", "1001"},
	} {
		asks := merchant()
		request := with(newSession(), func(n *store.NewSession) {
			n.MerchantName, n.Charge.OrderRef, n.Charge.TipCents = words[0], words[1], new(int64(0))
		})
		created := mustCreate(t, s, asks, request).Session
		_, read, err := s.Session(t.Context(), asks, created.ID)
		if diff := cmp.Diff(created, read, sameSession); err != nil || diff != "" {
			t.Errorf("%q: %v (-created +read):\n%s", words, err, diff)
		}
		_, public, err := s.PublicSession(t.Context(), payer(), created.ID)
		want := publicSession(created)
		want.ExpiresIn = public.ExpiresIn
		if err != nil || public != want {
			t.Errorf("%q: a payer reads %+v, %v", words, public, err)
		}
	}
}

func TestCreateSession_Replay(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	request := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	original := mustCreate(t, s, asks, request)

	again := mustCreate(t, s, asks, request)
	if diff := cmp.Diff(store.Created{Session: original.Session, Replayed: true}, again, sameSession); diff != "" {
		t.Errorf("the same charge (-want +got):\n%s", diff)
	}

	other := with(request, func(n *store.NewSession) { n.Charge.AmountCents++; n.MerchantName = "Renamed"; n.Lifetime = time.Hour })
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
		t.Errorf("no quota with a mismatch: %+v", admitted)
	}

	request.RejectMismatch = true
	if again = mustCreate(t, s, asks, request); !again.Replayed || again.Session.ID != original.Session.ID {
		t.Error("the same charge was not replayed after another one had been rejected")
	}
}

func TestCreateSession_IdempotencyKeysOfMerchants(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	request := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	original := mustCreate(t, s, asks, request)

	otherKey := with(asks, func(a *admission.Request) { a.KeyID, a.Digest, a.Order.Revision = newID(), newDigest(), 1 })
	if again := mustCreate(t, s, otherKey, request); !again.Replayed || again.Session.ID != original.Session.ID {
		t.Error("another API key of the merchant made a second charge")
	}
	if foreign := mustCreate(t, s, merchant(), request); foreign.Replayed || foreign.Session.ID == original.Session.ID {
		t.Error("another merchant's Idempotency-Key was answered with this merchant's session")
	}
	request.Idempotency = idempotencyKey(t, "order-1002")
	if next := mustCreate(t, s, asks, request); next.Replayed {
		t.Error("another Idempotency-Key was replayed")
	}
	if next := mustCreate(t, s, asks, newSession()); next.Replayed {
		t.Error("a charge without Idempotency-Key was replayed")
	}
}

func TestCreateSession_ConcurrentReplays(t *testing.T) {
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	for _, n := range []int{24, 200} {
		asks := merchant()
		request := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
		created := make([]store.Created, n)
		failures := make([]error, n)
		start := make(chan struct{})
		var callers sync.WaitGroup
		for i := range n {
			callers.Go(func() {
				<-start
				_, created[i], failures[i] = replicas[i%2].CreateSession(t.Context(), asks, request)
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
		if keys := merchantKeys(t, asks, "session:*"); len(keys) != 1 {
			t.Errorf("%d callers left %d sessions", n, len(keys))
		}
	}
}

func TestCreateSession_RejectedUsesNoIdempotencyKey(t *testing.T) {
	s := open(t, shared.URL())
	one := ratelimit.Policy{RequestsPerSecond: 1, Burst: 1}
	for desc, test := range map[string]struct {
		reject func(*admission.Request)
		want   error
	}{
		"a dead key":           {func(a *admission.Request) { a.Accepted = false }, admission.ErrKeyRejected},
		"an inactive merchant": {func(a *admission.Request) { a.Inactive = true }, admission.ErrMerchantNotActive},
		"over the limit":       {func(a *admission.Request) { a.Limit = one }, admission.ErrRateLimited},
	} {
		asks := merchant()
		refused := with(asks, test.reject)
		var request store.NewSession
		passed := 0
		eventually(t, desc+" is rejected", func() bool {
			request = with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, fmt.Sprintf("order-%d", passed)) })
			_, created, err := s.CreateSession(t.Context(), refused, request)
			if err == nil && errors.Is(test.want, admission.ErrRateLimited) {
				passed++
				return false
			}
			if !errors.Is(err, test.want) || !cmp.Equal(created, store.Created{}, sameSession) {
				t.Fatalf("%s: %+v, %v; want %v", desc, created, err, test.want)
			}
			return true
		})
		if len(merchantKeys(t, asks, "session:*")) != passed || len(merchantKeys(t, asks, "idem:"+asks.MerchantID+":*")) != passed {
			t.Errorf("%s left a session or an Idempotency-Key behind", desc)
		}
		corrected := with(request, func(n *store.NewSession) { n.Charge.AmountCents = 999 })
		if created := mustCreate(t, s, asks, corrected); created.Replayed || created.Mismatch || created.Session.Charge.AmountCents != 999 {
			t.Errorf("%s: the next try was answered with %+v", desc, created)
		}
	}
}

func TestCreateSession_CancelledContext(t *testing.T) {
	s := open(t, shared.URL())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	asks := merchant()
	_, _, err := s.CreateSession(gone, asks, newSession())
	if !errors.Is(err, redis.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want ErrUnavailable because of the cancellation", err)
	}
	if keys := merchantKeys(t, asks, "session:*"); len(keys) != 0 {
		t.Error("a session was created")
	}
}

// The one thing that must never happen is a second charge because the first one's record is gone.
func TestCreateSession_ReplayOfLostSession(t *testing.T) {
	s := open(t, shared.URL())
	c := client(t, shared)
	asks := merchant()
	request := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	created := mustCreate(t, s, asks, request).Session
	if n := c.Del(t.Context(), merchantTag(asks.MerchantID)+"session:"+created.ID.String()).Val(); n != 1 {
		t.Fatal("the session is not where it should be")
	}
	for range 2 {
		_, again, err := s.CreateSession(t.Context(), asks, request)
		if !errors.Is(err, redis.ErrCorrupt) || !cmp.Equal(again, store.Created{}, sameSession) {
			t.Errorf("%+v, %v; want ErrCorrupt", again, err)
		}
	}
	if keys := merchantKeys(t, asks, "session:*"); len(keys) != 0 {
		t.Errorf("there is a session again: %v", keys)
	}
}
