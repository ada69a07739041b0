package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// bank is the rail of most reports, and card is another one.
var bank, card = session.NewRail("system:serviceaccount:rails:bank"), session.NewRail("system:serviceaccount:rails:card")

// paid and failed are reports on a session of newSession.
func paid(ref string) session.Payment {
	return session.Payment{Rail: bank, Ref: ref, Outcome: session.Completed, AmountCents: 1250}
}

func failed(ref string) session.Payment {
	return session.Payment{Rail: bank, Ref: ref, Outcome: session.Failed, AmountCents: 1250, Reason: "no funds"}
}

func by(rail session.Rail, p session.Payment) session.Payment {
	p.Rail = rail
	return p
}

func in(currency string, p session.Payment) session.Payment {
	p.Currency = currency
	return p
}

func of(amount int64, p session.Payment) session.Payment {
	p.AmountCents = amount
	return p
}

// A rail's reports in turn, and what becomes of each.
func TestSettlement(t *testing.T) {
	applied := store.Settlement{Applied: true}
	again := store.Settlement{Applied: true, Repeated: true}
	refund := store.Settlement{RefundRequired: true}
	refundAgain := store.Settlement{RefundRequired: true, Repeated: true}
	nothing := store.Settlement{}
	type step struct {
		reports session.Payment
		want    store.Settlement
		status  session.Status // "": a conflict
	}
	const completed, failure, pending = session.Completed, session.Failed, session.Pending
	late, mismatch := v1alpha1.EventLatePayment, v1alpha1.EventPaymentMismatch
	for desc, test := range map[string]struct {
		steps  []step
		events []v1alpha1.WebhookEvent
	}{
		"paid":   {[]step{{paid("a"), applied, completed}}, []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted}},
		"failed": {[]step{{failed("a"), applied, failure}}, []v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed}},
		"reported again": {
			[]step{{paid("a"), applied, completed}, {paid("a"), again, completed}, {paid("a"), again, completed}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted},
		},
		"failure reported again": {
			[]step{{failed("a"), applied, failure}, {failed("a"), again, failure}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed},
		},
		"paid twice": {
			[]step{{paid("a"), applied, completed}, {paid("b"), refund, completed}, {paid("b"), refundAgain, completed}, {paid("c"), refund, completed}, {paid("a"), again, completed}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted, late, late},
		},
		"failed, then paid otherwise": {
			[]step{{failed("a"), applied, failure}, {paid("b"), refund, failure}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed, late},
		},
		"failed, then paid after all": {
			[]step{{failed("a"), applied, failure}, {paid("a"), refund, failure}, {paid("a"), refundAgain, failure}, {failed("a"), again, failure}, {of(7, failed("a")), nothing, ""}, {paid("a"), refundAgain, failure}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed, late},
		},
		"failed, then paid after all, and otherwise": {
			[]step{{failed("a"), applied, failure}, {of(999, paid("a")), refund, failure}, {paid("a"), nothing, ""}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed, late},
		},
		"a failure after the end": {
			[]step{{paid("a"), applied, completed}, {failed("b"), nothing, completed}, {failed("b"), nothing, completed}, {paid("b"), refund, completed}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted, late},
		},
		"another amount": {
			[]step{{of(999, paid("a")), refund, pending}, {of(999, paid("a")), refundAgain, pending}, {paid("b"), applied, completed}, {of(999, paid("a")), refundAgain, completed}},
			[]v1alpha1.WebhookEvent{mismatch, v1alpha1.EventSessionCompleted},
		},
		"another amount that failed": {[]step{{of(999, failed("a")), nothing, pending}, {failed("a"), applied, failure}}, []v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed}},
		"another amount after the end": {
			[]step{{paid("a"), applied, completed}, {of(999, paid("b")), refund, completed}, {of(998, failed("c")), nothing, completed}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted, late},
		},
		"contradictions of the payment that settled": {
			[]step{{paid("a"), applied, completed}, {failed("a"), nothing, ""}, {of(999, paid("a")), nothing, ""}, {of(999, failed("a")), nothing, ""}, {paid("a"), again, completed}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted},
		},
		"contradiction of the failure that settled": {
			[]step{{failed("a"), applied, failure}, {of(999, failed("a")), nothing, ""}, {failed("a"), again, failure}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed},
		},
		"paid by two rails under one reference": {
			[]step{
				{paid("a"), applied, completed}, {by(card, paid("a")), refund, completed}, {of(7, by("third", paid("a"))), refund, completed},
				{paid("a"), again, completed}, {by(card, paid("a")), refundAgain, completed}, {of(7, by(card, paid("a"))), nothing, ""},
			},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted, late, late},
		},
		"failed at one rail, paid at another under one reference": {
			[]step{{failed("a"), applied, failure}, {by(card, paid("a")), refund, failure}, {failed("a"), again, failure}, {by(card, failed("a")), nothing, ""}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed, late},
		},
		"another amount at one rail, paid at another under one reference": {
			[]step{{of(7, paid("a")), refund, pending}, {by(card, paid("a")), applied, completed}, {of(7, paid("a")), refundAgain, completed}},
			[]v1alpha1.WebhookEvent{mismatch, v1alpha1.EventSessionCompleted},
		},
		"another currency": {
			[]step{
				{in("USD", paid("a")), refund, pending}, {in("USD", paid("a")), refundAgain, pending}, {paid("a"), nothing, ""}, {in("EUR", paid("a")), nothing, ""},
				{in("GBP", paid("a")), nothing, ""}, {in("USD", failed("b")), nothing, pending}, {in("EUR", paid("c")), applied, completed},
				{paid("c"), again, completed}, {in("USD", paid("c")), nothing, ""}, {in("USD", paid("a")), refundAgain, completed}, {in("USD", paid("d")), refund, completed},
			},
			[]v1alpha1.WebhookEvent{mismatch, v1alpha1.EventSessionCompleted, late},
		},
		"the session's currency is that of a report without one": {
			[]step{
				{of(7, paid("a")), refund, pending}, {in("EUR", of(7, paid("a"))), refundAgain, pending},
				{paid("b"), applied, completed}, {in("EUR", paid("b")), again, completed},
			},
			[]v1alpha1.WebhookEvent{mismatch, v1alpha1.EventSessionCompleted},
		},
		"contradictions of a refused payment": {
			[]step{{of(999, paid("a")), refund, pending}, {paid("a"), nothing, ""}, {of(999, failed("a")), nothing, ""}, {failed("a"), nothing, ""}, {of(999, paid("a")), refundAgain, pending}},
			[]v1alpha1.WebhookEvent{mismatch},
		},
	} {
		t.Run(desc, func(t *testing.T) {
			replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
			asks := merchant()
			id := mustCreate(t, replicas[0], asks, newSession()).Session.ID
			for i, step := range test.steps {
				got, err := replicas[i%2].Settle(t.Context(), id, step.reports)
				if step.status == "" {
					if !errors.Is(err, store.ErrPaymentConflict) || !cmp.Equal(got, store.Settlement{}, sameSession) {
						t.Fatalf("report %d: %+v, %v; want ErrPaymentConflict", i, got, err)
					}
					continue
				}
				_, read, readErr := replicas[1].Session(t.Context(), asks, id)
				if err != nil || readErr != nil || got.Session.Status != step.status {
					t.Fatalf("report %d: %s, %v, %v; want %s", i, got.Session.Status, err, readErr, step.status)
				}
				step.want.Session = read
				if diff := cmp.Diff(step.want, got, sameSession); diff != "" {
					t.Fatalf("report %d (-want +got):\n%s", i, diff)
				}
			}
			events := eventsOf(t, client(t, shared), id)
			if !slices.Equal(kindsOf(events), test.events) {
				t.Errorf("recorded %v, want %v", kindsOf(events), test.events)
			}
		})
	}
}

// The default currency is not in a session's record.
func TestSettle_DefaultCurrency(t *testing.T) {
	s := open(t, shared.URL())
	wanted := with(newSession(), func(n *store.NewSession) { n.Currency = session.DefaultCurrency })
	for currency, want := range map[string]bool{"": true, session.DefaultCurrency: true, "EUR": false} {
		id := mustCreate(t, s, merchant(), wanted).Session.ID
		if got, err := s.Settle(t.Context(), id, in(currency, paid("a"))); err != nil || got.Applied != want || got.RefundRequired == want {
			t.Errorf("paid in %q: %+v, %v", currency, got, err)
		}
	}
}

// A session that keeps no more refused payments keeps that one.
func TestSettle_MerchantDeletedAndManyRefused(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	for i := range 100 {
		must(t, second(s.Settle(t.Context(), id, of(7, paid(fmt.Sprint("other ", i))))))
	}
	must(t, second(s.SettleDeleted(t.Context(), id, paid("a"))))
	if again, err := s.Settle(t.Context(), id, paid("a")); err != nil || !again.RefundRequired || again.Applied {
		t.Errorf("a replica that has not seen the deletion: %+v, %v", again, err)
	}
}

// Payments for a deleted merchant are bounded as all refused ones are. A session that had one takes nothing any more, whatever a replica knows.
func TestSettle_MerchantDeletedIsBounded(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	for i := range 120 {
		if got, err := s.SettleDeleted(t.Context(), id, paid(fmt.Sprint(i))); err != nil || !got.MerchantDeleted || got.Unstored != (i >= 100) {
			t.Fatalf("payment %d: %+v, %v", i, got, err)
		}
	}
	for name, payment := range map[string]session.Payment{"stored": paid("0"), "not stored": paid("119"), "new": paid("new"), "of another rail": by(card, paid("0"))} {
		if got, err := s.Settle(t.Context(), id, payment); err != nil || !got.RefundRequired || got.Applied {
			t.Errorf("a replica that has not seen the deletion, %s: %+v, %v", name, got, err)
		}
	}
	if _, err := s.Hold(t.Context(), id, holding(bank, "held")); !errors.Is(err, store.ErrMerchantNotActive) {
		t.Errorf("a replica that has not seen the deletion, hold: %v", err)
	}
	if read, err := s.Payments(t.Context(), id); err != nil || len(read.Refused) != 101 || !read.MerchantDeleted {
		t.Errorf("a rail reads %d refused payments, deleted %v, %v", len(read.Refused), read.MerchantDeleted, err)
	}
	if got, err := s.Settle(t.Context(), id, failed("failed")); err != nil || !got.Applied {
		t.Errorf("a failure: %+v, %v", got, err)
	}
}

// New money for a merchant that was deleted is refunded, and no event is recorded of it. A report that was answered before gets the same
// answer, whatever this replica knows of the deletion by now.
func TestSettle_MerchantDeleted(t *testing.T) {
	applied := store.Settlement{Applied: true}
	again := store.Settlement{Applied: true, Repeated: true}
	refund := store.Settlement{RefundRequired: true, MerchantDeleted: true}
	refundAgain := store.Settlement{RefundRequired: true, Repeated: true}
	type step struct {
		payment session.Payment
		known   bool // the replica knows of the deletion
		want    store.Settlement
		status  session.Status // "": a conflict
	}
	const completed, failure, pending = session.Completed, session.Failed, session.Pending
	for name, test := range map[string]struct {
		steps  []step
		events []v1alpha1.WebhookEvent
	}{
		"paid":               {[]step{{paid("a"), true, refund, pending}}, nil},
		"paid, repeated":     {[]step{{paid("a"), true, refund, pending}, {paid("a"), true, refundAgain, pending}, {paid("a"), false, refundAgain, pending}}, nil},
		"paid, contradicted": {[]step{{paid("a"), true, refund, pending}, {failed("a"), true, store.Settlement{}, ""}, {of(7, paid("a")), true, store.Settlement{}, ""}}, nil},
		"another amount":     {[]step{{of(7, paid("a")), true, refund, pending}, {paid("b"), true, refund, pending}}, nil},
		"paid before, repeated": {
			[]step{{paid("a"), false, applied, completed}, {paid("a"), true, again, completed}, {paid("a"), false, again, completed}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted},
		},
		"paid before, and once more": {
			[]step{{paid("a"), false, applied, completed}, {paid("b"), true, refund, completed}, {paid("b"), false, refundAgain, completed}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted},
		},
		"refused before, repeated": {
			[]step{{of(7, paid("a")), false, store.Settlement{RefundRequired: true}, pending}, {of(7, paid("a")), true, refundAgain, pending}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventPaymentMismatch},
		},
		"failed": {
			[]step{{failed("a"), true, applied, failure}, {failed("a"), true, again, failure}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed},
		},
		"failed, then paid after all": {
			[]step{{failed("a"), true, applied, failure}, {paid("a"), true, refund, failure}, {paid("a"), true, refundAgain, failure}, {failed("a"), true, again, failure}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, asks := open(t, shared.URL()), merchant()
			id := mustCreate(t, s, asks, newSession()).Session.ID
			for i, step := range test.steps {
				settle := s.Settle
				if step.known {
					settle = s.SettleDeleted
				}
				got, err := settle(t.Context(), id, step.payment)
				if step.status == "" {
					if !errors.Is(err, store.ErrPaymentConflict) {
						t.Fatalf("report %d: %+v, %v; want ErrPaymentConflict", i, got, err)
					}
					continue
				}
				_, read, readErr := s.Session(t.Context(), asks, id)
				if err != nil || readErr != nil || read.Status != step.status {
					t.Fatalf("report %d: %s, %v, %v; want %s", i, read.Status, err, readErr, step.status)
				}
				step.want.Session = read
				if diff := cmp.Diff(step.want, got, sameSession); diff != "" {
					t.Fatalf("report %d (-want +got):\n%s", i, diff)
				}
			}
			if events := kindsOf(eventsOf(t, client(t, shared), id)); !slices.Equal(events, test.events) {
				t.Errorf("recorded %v, want %v", events, test.events)
			}
		})
	}
}

func TestASettledSessionShowsItsPayment(t *testing.T) {
	s := open(t, shared.URL())
	at := time.UnixMilli(1_700_000_000_123).UTC()
	for _, payment := range []session.Payment{
		paid("~rail:1"),
		with(paid(`l:"{}`), func(p *session.Payment) { p.PaidAt, p.Reason = at, "not kept: it did not fail" }),
		failed("%d"),
		with(failed("1"), func(p *session.Payment) { p.PaidAt, p.Reason = at, "ünder 日本 \"'" }),
		with(failed("1"), func(p *session.Payment) { p.Reason = "" }),
	} {
		asks := merchant()
		created := mustCreate(t, s, asks, newSession()).Session
		settled, err := s.Settle(t.Context(), created.ID, payment)
		must(t, err)
		want := with(created, func(s *session.Session) {
			s.Status, s.PaidAt, s.EndedAt = payment.Outcome, payment.PaidAt, settled.Session.EndedAt
			s.PaymentRail, s.PaymentRef = payment.Rail, payment.Ref
			if payment.Outcome == session.Failed {
				s.Reason = payment.Reason
			}
		})
		if diff := cmp.Diff(want, settled.Session, sameSession); diff != "" {
			t.Errorf("answered (-want +got):\n%s", diff)
		}
		admitted, read, err := s.Session(t.Context(), asks, created.ID)
		if diff := cmp.Diff(want, read, sameSession); err != nil || diff != "" {
			t.Errorf("read: %v (-want +got):\n%s", err, diff)
		}
		if read.EndedAt.Before(created.CreatedAt) || read.EndedAt.After(admitted.Now) {
			t.Errorf("ended at %s, created at %s, read at %s", read.EndedAt, created.CreatedAt, admitted.Now)
		}
		if _, public, err := s.PublicSession(t.Context(), payer(), created.ID); err != nil || public.Status != payment.Outcome {
			t.Errorf("publicly: %+v, %v", public, err)
		}
	}
}

func TestPaymentsOfCancelledAndExpiredSessionsAreLate(t *testing.T) {
	s := open(t, shared.URL())
	for _, want := range []session.Status{session.Cancelled, session.Expired} {
		asks := merchant()
		var created session.Session
		if want == session.Cancelled {
			created = mustCreate(t, s, asks, newSession()).Session
			_, _, err := s.Cancel(t.Context(), asks, created.ID)
			must(t, err)
		} else {
			created = mustCreate(t, s, asks, with(newSession(), func(n *store.NewSession) { n.Lifetime = 10 * time.Millisecond })).Session
			due(t, s, created) // and the payment is the first to find out
		}
		nothing, err := s.Settle(t.Context(), created.ID, failed("a"))
		if err != nil || nothing.Applied || nothing.RefundRequired || nothing.Session.Status != want {
			t.Errorf("%s: a failure: %+v, %v", want, nothing, err)
		}
		for range 2 {
			late, err := s.Settle(t.Context(), created.ID, paid("b"))
			if err != nil || late.Applied || !late.RefundRequired || late.Session.Status != want || late.Session.PaymentRef != "" {
				t.Errorf("%s: a payment: %+v, %v", want, late, err)
			}
		}
		events := eventsOf(t, client(t, shared), created.ID)
		if len(events) != 2 || events[1].Kind != v1alpha1.EventLatePayment || events[1].Session.Status != want {
			t.Errorf("%s: recorded %v", want, kindsOf(events))
		}
	}
}

func TestPaymentsOfNoSession(t *testing.T) {
	s := open(t, shared.URL())
	for desc, id := range map[string]session.ID{"never made": session.NewID("abcdefgh2345", false), "no id at all": {}} {
		got, err := s.Settle(t.Context(), id, paid("a"))
		if !errors.Is(err, store.ErrNotFound) || !cmp.Equal(got, store.Settlement{}, sameSession) {
			t.Errorf("%s: %+v, %v; want ErrNotFound", desc, got, err)
		}
		if n := client(t, shared).Exists(t.Context(), bucketTagOf(id.Bucket())+"session:"+id.String()).Val(); n != 0 {
			t.Errorf("%s: there is a session now", desc)
		}
	}
}

// A rail that refuses to stop, or whoever has a test key, gets the same answer for each payment; Redis keeps some of them.
func TestSettle_RefusedPaymentsAreBounded(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	for name, test := range map[string]struct {
		asks   store.Admission
		settle func(context.Context, session.ID, session.Payment) (store.Settlement, error)
		most   int
	}{
		"live": {merchant(), func(ctx context.Context, id session.ID, p session.Payment) (store.Settlement, error) {
			return s.Settle(ctx, id, p)
		}, 100},
		"test": {with(merchant(), inTestMode), s.SettleTest, 5},
	} {
		t.Run(name, func(t *testing.T) {
			id := mustCreate(t, s, test.asks, newSession()).Session.ID
			if _, err := test.settle(t.Context(), id, paid("a")); err != nil {
				t.Fatal(err)
			}
			for i := range test.most + 3 {
				late := paid(fmt.Sprint("late ", i))
				for again := range 2 {
					unstored := i >= test.most
					got, err := test.settle(t.Context(), id, late)
					want := store.Settlement{Session: got.Session, RefundRequired: true, Unstored: unstored, Repeated: again == 1 && !unstored}
					if diff := cmp.Diff(want, got, sameSession); err != nil || diff != "" {
						t.Fatalf("late payment %d, report %d: %v (-want +got):\n%s", i, again, err, diff)
					}
				}
			}
			if got := len(storetest.Events(t, c, id)); got != test.most+1 {
				t.Errorf("%d events, want the end and %d payments", got, test.most)
			}
			stored := 0
			for field := range c.HGetAll(t.Context(), bucketTag(test.asks.MerchantID)+"session:"+id.String()).Val() {
				if strings.HasPrefix(field, "l:") {
					stored++
				}
			}
			if stored != test.most {
				t.Errorf("%d refused payments are stored, want %d", stored, test.most)
			}
			if again, err := test.settle(t.Context(), id, paid("a")); err != nil || !again.Applied || !again.Repeated {
				t.Errorf("the payment that settled it, reported again: %+v, %v", again, err)
			}
			if name == "live" {
				if got, err := s.Settle(t.Context(), id, by(card, paid("late"))); err != nil || got.Unstored {
					t.Errorf("the payment of another rail: %+v, %v", got, err)
				}
			}
		})
	}
}

// Nothing makes Redis keep a test session for longer than a day after its end.
func TestSettleTest_KeepsNothingLonger(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	asks := with(merchant(), inTestMode)
	wanted := newSession()
	id := mustCreate(t, s, asks, wanted).Session.ID
	for _, payment := range []session.Payment{of(7, paid("a")), paid("b"), paid("c")} {
		if _, err := s.SettleTest(t.Context(), id, payment); err != nil {
			t.Fatal(err)
		}
		left := c.PTTL(t.Context(), bucketTag(asks.MerchantID)+"session:"+id.String()).Val()
		if most := wanted.Lifetime + 24*time.Hour; left > most || left < most-patience {
			t.Errorf("after payment %s it is kept for %s, want %s", payment.Ref, left, most)
		}
	}
}
