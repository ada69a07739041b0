package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

func lasting(lifetime time.Duration) func(*store.NewSession) {
	return func(n *store.NewSession) { n.Lifetime = lifetime }
}

// Merchants choose lifetimes of their own; none of them waits for another.
func TestSessionsOfEachLifetimeAreSweptInTheirOrder(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantOf(7)
	var last session.Session
	for i := range 6 { // two in each line
		last = mustCreate(t, s, asks, with(newSession(), lasting(time.Duration(10+i%3)*time.Millisecond))).Session
	}
	waits := mustCreate(t, s, asks, with(newSession(), lasting(time.Hour))).Session
	due(t, s, last)
	first, err := sweep(t.Context(), s.Store, 7, 5)
	if err != nil || first.Expired != 5 || !first.More || first.Oldest <= 0 {
		t.Errorf("the first sweep: %+v, %v; want 5 expired and more", first, err)
	}
	if rest := sweepAll(t, s, 7, 5); rest.Expired != 1 {
		t.Errorf("the second sweep: %+v, want the last one", rest)
	}
	if pending := pendingIn(t, c, 7); !cmp.Equal(pending, []string{waits.ID.String()}) {
		t.Errorf("waiting: %v, want %s", pending, waits.ID)
	}
	if at := c.ZScore(t.Context(), "{b07n}:expiry", "3600000").Val(); int64(at) != waits.ExpiresAt.UnixMilli() {
		t.Errorf("its line is due at %.0f, want %d", at, waits.ExpiresAt.UnixMilli())
	}
}

// A line is due when its first session is, also when those before it are gone.
func TestALineIsDueWithItsFirstSession(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantOf(7)
	first := mustCreate(t, s, asks, newSession()).Session
	second := mustCreate(t, s, asks, newSession()).Session
	_, _, err := s.Cancel(t.Context(), asks, first.ID)
	must(t, err)
	must(t, c.ZAdd(t.Context(), "{b07n}:expiry", goredis.Z{Score: 1, Member: "900000"}).Err()) // as if its turn had come
	if swept, err := sweep(t.Context(), s.Store, 7, 10); err != nil || swept != (store.Swept{}) {
		t.Errorf("%+v, %v; want nothing to expire", swept, err)
	}
	if pending := pendingIn(t, c, 7); !cmp.Equal(pending, []string{second.ID.String()}) {
		t.Errorf("waiting: %v, want %s", pending, second.ID)
	}
	if at := c.ZScore(t.Context(), "{b07n}:expiry", "900000").Val(); int64(at) != second.ExpiresAt.UnixMilli() {
		t.Errorf("the line is due at %.0f, want %d", at, second.ExpiresAt.UnixMilli())
	}
}

// Should the index get lost, new sessions bring it back.
func TestALineThatGotLostIsFoundAgain(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantOf(7)
	var last session.Session
	for i := range 65 {
		last = mustCreate(t, s, asks, with(newSession(), short)).Session
		if i == 0 {
			must(t, c.Del(t.Context(), "{b07n}:expiry").Err())
		}
	}
	due(t, s, last)
	if swept := sweepAll(t, s, 7, 10); swept.Expired != 65 {
		t.Errorf("%+v, want all 65 expired", swept)
	}
}

func TestALineThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	expired := mustCreate(t, s, merchantOf(7), with(newSession(), short)).Session
	must(t, c.Set(t.Context(), "{b07n}:expiry:5", "text", 0).Err())
	must(t, c.ZAdd(t.Context(), "{b07n}:expiry", goredis.Z{Score: 1, Member: "5"}).Err())
	due(t, s, expired)
	if swept, err := sweep(t.Context(), s.Store, 7, 10); err != nil || swept.Expired != 1 || swept.Corrupt != 1 {
		t.Errorf("%+v, %v; want one expired and one corrupt", swept, err)
	}
	if again, err := sweep(t.Context(), s.Store, 7, 10); err != nil || again != (store.Swept{}) {
		t.Errorf("a second sweep finds %+v, %v", again, err)
	}
}

// Name and order stand behind each other in one field: none may be taken for a part of the other.
func TestWordsAreReadBackAsTheyWereGiven(t *testing.T) {
	s := open(t, shared.URL())
	long := strings.Repeat("ö", 255)
	for _, words := range [][2]string{
		{"Acme", ""}, {"Acme ", " 1001"}, {"7 Acme", "4 1001"}, {" ", "-"}, {"Café\n", "é"}, {"\x00", "%d"}, {long, long}, {"", "1001"},
	} {
		asks := merchant()
		wanted := with(newSession(), func(n *store.NewSession) {
			n.MerchantName, n.Charge.OrderRef, n.Charge.TipCents = words[0], words[1], new(int64(0))
		})
		created := mustCreate(t, s, asks, wanted).Session
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
