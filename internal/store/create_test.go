package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

var sameSession = cmp.AllowUnexported(session.ID{})

func TestACreatedSessionIsReadAsItWasAnswered(t *testing.T) {
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
			wanted := with(newSession(), func(n *store.NewSession) { n.Charge, n.MerchantName = charge, "Café \"Ω\"\n" })
			admitted, created, err := s.CreateSession(t.Context(), asks, wanted)
			if err != nil {
				t.Fatal(err)
			}
			createdAt := admitted.Now.Truncate(time.Millisecond)
			want := session.Session{
				ID: created.Session.ID, MerchantID: asks.MerchantID, MerchantName: wanted.MerchantName, KeyID: asks.KeyID,
				Status: session.Pending, Currency: wanted.Currency,
				Charge: charge, CreatedAt: createdAt, ExpiresAt: createdAt.Add(15 * time.Minute),
			}
			if diff := cmp.Diff(store.Created{Session: want}, created, sameSession); diff != "" {
				t.Errorf("created (-want +got):\n%s", diff)
			}
			if created.Session.ID.Bucket() != session.BucketOf(asks.MerchantID) {
				t.Error("the session is not in its merchant's bucket")
			}
			story, err := s.Story(t.Context(), created.Session.ID)
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

func TestWhatPayersSee(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	want := publicSession(created)
	_, public, err := s.PublicSession(t.Context(), payer(), created.ID)
	if err != nil {
		t.Fatal(err)
	}
	if public.ExpiresIn <= 14*time.Minute || public.ExpiresIn > 15*time.Minute {
		t.Errorf("a new session expires in %s, want nearly 15 minutes", public.ExpiresIn)
	}
	want.ExpiresIn = public.ExpiresIn
	if public != want {
		t.Errorf("public read: %+v, want %+v", public, want)
	}
	_, cancelled, err := s.Cancel(t.Context(), asks, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	want.Status, want.ExpiresIn, want.EndedAt = session.Cancelled, 0, cancelled.EndedAt
	if _, public, err := s.PublicSession(t.Context(), payer(), created.ID); err != nil || public != want {
		t.Errorf("after the end: %+v, %v, want %+v", public, err, want)
	}
}

// publicSession is what payers see of a session from newSession.
func publicSession(created session.Session) store.PublicSession {
	charge := created.Charge
	public := store.PublicSession{
		MerchantID: created.MerchantID, MerchantName: created.MerchantName, AmountCents: charge.AmountCents, Currency: "EUR",
		OrderRef: charge.OrderRef, Status: created.Status, ExpiresAt: created.ExpiresAt,
	}
	if charge.TaxCents != nil {
		public.TaxCents = *charge.TaxCents
	}
	if charge.TipCents != nil {
		public.TipCents = *charge.TipCents
	}
	return public
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
		"never made":                       {owner, session.NewID(own.MerchantID(), false)},
		"never made, of another merchant":  {owner, session.NewID(stranger.MerchantID, false)},
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
	for desc, id := range map[string]session.ID{"never made": session.NewID("aaaaaaaaaaaa", false), "no id at all": {}} {
		asks := payer()
		quota, read, err := s.PublicSession(t.Context(), asks, id)
		if !errors.Is(err, store.ErrNotFound) || read != (store.PublicSession{}) || quota.Remaining != asks.Limit.Burst-1 {
			t.Errorf("publicly, %s: %+v, %+v, %v; want ErrNotFound and a quota", desc, quota, read, err)
		}
	}
}
