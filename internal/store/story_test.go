package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// A story has the session as its merchant reads it, and each payment that it did not take.
func TestStory_RefusedPayments(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	paidAt := func(second int64, p session.Payment) session.Payment {
		p.PaidAt = time.Unix(second, 0).UTC()
		return p
	}
	amount, twice, dollars := paidAt(3, of(7, paid("other amount"))), paidAt(1, paid("paid twice")), paidAt(4, in("USD", paid("other currency")))
	for _, payment := range []session.Payment{amount, paidAt(2, paid("card-1")), twice, dollars} {
		must(t, second(s.Settle(t.Context(), created.ID, payment)))
	}
	must(t, second(s.SettleDeleted(t.Context(), created.ID, paid("no merchant"))))
	_, want, err := s.Session(t.Context(), asks, created.ID)
	must(t, err)
	got, err := s.ReadStory(t.Context(), created.ID)
	must(t, err)
	if diff := cmp.Diff(session.Story{Session: want, Refused: []session.RefusedPayment{
		{Payment: in("EUR", paid("no merchant")), Decision: session.MerchantDeleted},
		{Payment: in("EUR", twice), Decision: session.Late},
		{Payment: in("EUR", amount), Decision: session.Mismatched},
		{Payment: dollars, Decision: session.Late},
	}}, got, sameSession); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Session.Status != session.Completed || got.Session.PaymentRef != "card-1" {
		t.Errorf("the session is %+v", got.Session)
	}
}

// A read-only request does not end a session that is due, and shows how it ends.
func TestStory_DueSessionIsNotWritten(t *testing.T) {
	s, asks, c := open(t, shared.URL()), merchant(), client(t, shared)
	created := mustCreate(t, s, asks, with(newSession(), short)).Session
	due(t, s, created)
	key := merchantTag(asks.MerchantID) + "session:" + created.ID.String()
	before := c.HGetAll(t.Context(), key).Val()
	story, err := s.ReadStory(t.Context(), created.ID)
	must(t, err)
	if story.Session.Status != session.Expired || !story.Session.EndedAt.Equal(created.ExpiresAt) {
		t.Errorf("it is shown as %s, ended %s", story.Session.Status, story.Session.EndedAt)
	}
	if diff := cmp.Diff(before, c.HGetAll(t.Context(), key).Val()); diff != "" || len(before) == 0 {
		t.Errorf("the session in Redis (-before +after):\n%s", diff)
	}
}

func TestStory_Errors(t *testing.T) {
	s, asks, c := open(t, shared.URL()), merchant(), client(t, shared)
	created := mustCreate(t, s, asks, newSession()).Session
	key := merchantTag(asks.MerchantID) + "session:" + created.ID.String()
	for name, id := range map[string]session.ID{"none": session.NewID(asks.MerchantID, false), "zero": {}, "the other mode": session.NewID(asks.MerchantID, true)} {
		if story, err := s.ReadStory(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %+v, %v", name, story, err)
		}
	}
	for _, garbage := range []string{"", "late", "late x 0", "late 1 x", "applied 1 0", "late 1 0 EUR x"} {
		must(t, c.HSet(t.Context(), key, "l:"+bank.Scope("card-1"), garbage).Err())
		if story, err := s.ReadStory(t.Context(), created.ID); err == nil {
			t.Errorf("with a refused payment %q: %+v", garbage, story)
		}
	}
}

// A rail's read has the payments that the session did not take, as its story has them, and a session that is due expires by it.
func TestPayments(t *testing.T) {
	s, asks, c := open(t, shared.URL()), merchant(), client(t, shared)
	created := mustCreate(t, s, asks, newSession()).Session
	for _, test := range []struct {
		payment session.Payment
		refused int
	}{{of(7, paid("other amount")), 1}, {paid("card-1"), 1}, {paid("paid twice"), 2}} {
		must(t, second(s.Settle(t.Context(), created.ID, test.payment)))
		want, err := s.ReadStory(t.Context(), created.ID)
		must(t, err)
		got, err := s.Payments(t.Context(), created.ID)
		must(t, err)
		if diff := cmp.Diff(want, got.Story, sameSession); diff != "" || len(got.Refused) != test.refused {
			t.Errorf("after %s (-story +payments):\n%s", test.payment.Ref, diff)
		}
	}
	overdue := mustCreate(t, s, asks, with(newSession(), short)).Session
	due(t, s, overdue)
	got, err := s.Payments(t.Context(), overdue.ID)
	must(t, err)
	if got.Session.Status != session.Expired || !got.Session.EndedAt.Equal(overdue.ExpiresAt) {
		t.Errorf("a session that is due is %s, ended %s", got.Session.Status, got.Session.EndedAt)
	}
	if events := eventKinds(sessionEvents(t, c, overdue.ID)); len(events) != 1 || events[0] != v1alpha1.EventSessionExpired {
		t.Errorf("events of a session that was due: %v", events)
	}
	mode := with(asks, inTestMode)
	for name, id := range map[string]session.ID{
		"none": session.NewID(asks.MerchantID, false), "zero": {}, "test mode": mustCreate(t, s, mode, newSession()).Session.ID,
	} {
		if got, err := s.Payments(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	must(t, c.HSet(t.Context(), merchantTag(asks.MerchantID)+"session:"+created.ID.String(), "l:"+bank.Scope("card-9"), "late x 0").Err())
	if got, err := s.Payments(t.Context(), created.ID); err == nil {
		t.Errorf("with an unreadable refused payment: %+v", got)
	}
}
