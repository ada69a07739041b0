package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// A rail's reports in turn, and what becomes of each.
func TestSettle(t *testing.T) {
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
			events := sessionEvents(t, client(t, shared), id)
			if !slices.Equal(eventKinds(events), test.events) {
				t.Errorf("recorded %v, want %v", eventKinds(events), test.events)
			}
		})
	}
}

// The default currency is not in a session's record.
func TestSettle_DefaultCurrency(t *testing.T) {
	s := open(t, shared.URL())
	request := with(newSession(), func(n *store.NewSession) { n.Currency = session.DefaultCurrency })
	for currency, want := range map[string]bool{"": true, session.DefaultCurrency: true, "EUR": false} {
		id := mustCreate(t, s, merchant(), request).Session.ID
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

// Payments for a deleted merchant are bounded as all refused ones are. A session that had one accepts no further payment, whatever a replica knows.
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
	if _, err := s.Hold(t.Context(), id, holding(bank, "held")); !errors.Is(err, admission.ErrMerchantNotActive) {
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
			if events := eventKinds(sessionEvents(t, client(t, shared), id)); !slices.Equal(events, test.events) {
				t.Errorf("recorded %v, want %v", events, test.events)
			}
		})
	}
}

func TestSettle_SessionShowsPayment(t *testing.T) {
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

func TestSettle_LatePayment(t *testing.T) {
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
		events := sessionEvents(t, client(t, shared), created.ID)
		if len(events) != 2 || events[1].Kind != v1alpha1.EventLatePayment || events[1].Session.Status != want {
			t.Errorf("%s: recorded %v", want, eventKinds(events))
		}
	}
}

func TestSettle_NotFound(t *testing.T) {
	s := open(t, shared.URL())
	for desc, id := range map[string]session.ID{"never made": session.NewID("abcdefgh2345", false), "no id at all": {}} {
		got, err := s.Settle(t.Context(), id, paid("a"))
		if !errors.Is(err, store.ErrNotFound) || !cmp.Equal(got, store.Settlement{}, sameSession) {
			t.Errorf("%s: %+v, %v; want ErrNotFound", desc, got, err)
		}
		if n := client(t, shared).Exists(t.Context(), bucketTag(id.Bucket())+"session:"+id.String()).Val(); n != 0 {
			t.Errorf("%s: there is a session now", desc)
		}
	}
}

// A rail that does not stop, or the holder of a test key, gets the same answer for each payment; Redis keeps some of them.
func TestSettle_RefusedPaymentsAreBounded(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	for name, test := range map[string]struct {
		asks   admission.Request
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
			for field := range c.HGetAll(t.Context(), merchantTag(test.asks.MerchantID)+"session:"+id.String()).Val() {
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
	request := newSession()
	id := mustCreate(t, s, asks, request).Session.ID
	for _, payment := range []session.Payment{of(7, paid("a")), paid("b"), paid("c")} {
		if _, err := s.SettleTest(t.Context(), id, payment); err != nil {
			t.Fatal(err)
		}
		left := c.PTTL(t.Context(), merchantTag(asks.MerchantID)+"session:"+id.String()).Val()
		if most := request.Lifetime + 24*time.Hour; left > most || left < most-patience {
			t.Errorf("after payment %s it is kept for %s, want %s", payment.Ref, left, most)
		}
	}
}

// pass lets the time pass that keys are kept for; those whose time is over end.
func pass(t *testing.T, c *goredis.Client, passed time.Duration) {
	t.Helper()
	for _, key := range c.Keys(t.Context(), "*").Val() {
		left := c.PTTL(t.Context(), key).Val()
		if left < 0 {
			continue // it has no end
		}
		must(t, c.PExpire(t.Context(), key, left-passed).Err())
	}
}

// A rail that had no answer asks again when it can, which may be after a long weekend. "No such session" would have it send
// money back for goods that were handed over.
func TestSettle_RepeatedForThirtyDays(t *testing.T) {
	server := redistest.Start(t)
	s, c := storetest.OpenWith(t, server.URL(), store.Options{SessionRetention: 24 * time.Hour}), client(t, server)
	asks := merchant()
	type report struct {
		payment session.Payment
		id      session.ID
		first   store.Settlement
	}
	reports := map[string]report{}
	for desc, payment := range map[string]session.Payment{
		"paid": paid("a"), "failed": failed("a"), "late": paid("a"), "another amount": of(7, paid("a")), "merchant deleted": paid("a"),
	} {
		id := mustCreate(t, s, asks, newSession()).Session.ID
		if desc == "late" {
			_, _, err := s.Cancel(t.Context(), asks, id)
			must(t, err)
		}
		settle := s.Settle
		if desc == "merchant deleted" {
			settle = s.SettleDeleted
		}
		first, err := settle(t.Context(), id, payment)
		must(t, err)
		first.Repeated, first.MerchantDeleted = true, false // counted once
		reports[desc] = report{payment, id, first}
	}
	unreported := mustCreate(t, s, asks, newSession()).Session.ID
	_, _, err := s.Cancel(t.Context(), asks, unreported)
	must(t, err)

	const days = 24 * time.Hour
	for range 3 { // a repetition does not begin the days anew
		pass(t, c, 29*days/3)
		for desc, report := range reports {
			again, err := s.Settle(t.Context(), report.id, report.payment)
			if diff := cmp.Diff(report.first, again, sameSession); err != nil || diff != "" {
				t.Errorf("%s, reported again: %v (-first +again):\n%s", desc, err, diff)
			}
		}
	}
	if _, err := s.Settle(t.Context(), unreported, paid("a")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a report on a session that no rail had reported of: %v, want ErrNotFound", err)
	}
	pass(t, c, 2*days)
	for desc, report := range reports {
		if _, err := s.Settle(t.Context(), report.id, report.payment); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s, after 31 days: %v, want ErrNotFound", desc, err)
		}
	}
}

// A platform that keeps sessions for longer does not lose them to a report.
func TestSettle_KeepsLongRetention(t *testing.T) {
	const kept = 60 * 24 * time.Hour
	server := redistest.Start(t)
	s, c := storetest.OpenWith(t, server.URL(), store.Options{SessionRetention: kept}), client(t, server)
	asks := merchant()
	created := mustCreate(t, s, asks, with(newSession(), lasting(24*time.Hour))).Session
	_, err := s.Settle(t.Context(), created.ID, paid("a"))
	must(t, err)
	pass(t, c, kept)
	if _, _, err := s.Session(t.Context(), asks, created.ID); err != nil {
		t.Errorf("after %s: %v", kept, err)
	}
}

// A merchant cancels on one replica while the payer pays on the other.
func TestEnd_CancelAndSettleRace(t *testing.T) {
	const races = 40
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	c := client(t, shared)
	type race struct {
		asks      admission.Request
		id        session.ID
		cancelled session.Session
		cancelErr error
		settled   store.Settlement
		settleErr error
	}
	all := make([]race, races)
	start := make(chan struct{})
	var racing sync.WaitGroup
	for i := range all {
		r := &all[i]
		r.asks = merchant()
		r.id = mustCreate(t, replicas[0], r.asks, newSession()).Session.ID
		racing.Go(func() {
			<-start
			_, r.cancelled, r.cancelErr = replicas[i%2].Cancel(t.Context(), r.asks, r.id)
		})
		racing.Go(func() {
			<-start
			r.settled, r.settleErr = replicas[(i+1)%2].Settle(t.Context(), r.id, paid("rail-1"))
		})
	}
	close(start)
	racing.Wait()

	cancelled := 0
	for i, r := range all {
		if r.settleErr != nil || (r.cancelErr != nil && !errors.Is(r.cancelErr, store.ErrSessionEnded)) {
			t.Fatalf("race %d: %v, %v", i, r.cancelErr, r.settleErr)
		}
		want, events := session.Completed, []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted}
		if r.cancelErr == nil {
			want, events = session.Cancelled, []v1alpha1.WebhookEvent{v1alpha1.EventSessionCancelled, v1alpha1.EventLatePayment}
			cancelled++
		}
		if r.settled.Applied != (want == session.Completed) || r.settled.RefundRequired != (want == session.Cancelled) {
			t.Errorf("race %d: cancel: %v, but settle: %+v", i, r.cancelErr, r.settled)
		}
		for _, s := range replicas {
			_, read, err := s.Session(t.Context(), r.asks, r.id)
			if err != nil || read.Status != want || r.cancelled.Status != want || r.settled.Session.Status != want {
				t.Errorf("race %d: read %s, cancel saw %s, settle saw %s, want %s: %v",
					i, read.Status, r.cancelled.Status, r.settled.Session.Status, want, err)
			}
		}
		if got := eventKinds(sessionEvents(t, c, r.id)); !slices.Equal(got, events) {
			t.Errorf("race %d: recorded %v, want %v", i, got, events)
		}
	}
	t.Logf("cancel won %d of %d races", cancelled, races)
}

// Rails repeat themselves, and not always after the answer has come.
func TestSettle_ConcurrentReports(t *testing.T) {
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	const reports = 40
	for _, payment := range []session.Payment{paid("a"), failed("a"), of(999, paid("a"))} {
		id := mustCreate(t, replicas[0], merchant(), newSession()).Session.ID
		got := make([]store.Settlement, reports)
		errs := make([]error, reports)
		var reporting sync.WaitGroup
		for i := range reports {
			reporting.Go(func() { got[i], errs[i] = replicas[i%2].Settle(t.Context(), id, payment) })
		}
		reporting.Wait()
		first := 0
		for i := range reports {
			if errs[i] != nil || got[i].Applied != got[0].Applied || got[i].RefundRequired != got[0].RefundRequired {
				t.Fatalf("answers differ: %+v and %+v, %v", got[0], got[i], errs[i])
			}
			if !got[i].Repeated {
				first++
			}
		}
		if events := sessionEvents(t, client(t, shared), id); first != 1 || len(events) != 1 {
			t.Errorf("%+v: %d reports counted, with %d events", payment, first, len(events))
		}
	}
}

// messagesDuring are the messages that scripts publish meanwhile: channel and text.
func messagesDuring(t *testing.T, server *redistest.Server, do func()) (messages []string) {
	t.Helper()
	for _, command := range storetest.Monitored(t, server, do) {
		if command.Lua && strings.HasSuffix(strings.ToLower(command.Words[0]), "publish") {
			messages = append(messages, command.Words[1]+" "+command.Words[2])
		}
	}
	return messages
}

// The end of a session and each refused payment are published once, on one server and in a cluster. Nothing else is.
func TestPublish_EndsAndRefusedPayments(t *testing.T) {
	t.Parallel()
	single, cluster := redistest.Start(t), startCluster(t)
	slot := int(client(t, cluster[0]).ClusterKeySlot(t.Context(), storetest.BucketTag(7)).Val())
	t.Run("one server", func(t *testing.T) { t.Parallel(); checkPublished(t, single.URL(), single) })
	t.Run("a cluster", func(t *testing.T) {
		t.Parallel()
		checkPublished(t, "redis+cluster://"+cluster[0].Addr(), cluster[slot*3/slots])
	})
}

// checkPublished ends sessions of bucket 7, which is on the server.
func checkPublished(t *testing.T, url string, server *redistest.Server) {
	t.Helper()
	s, asks := open(t, url), merchantIn(7)
	settle := func(payment session.Payment) func(session.ID) {
		return func(id session.ID) { must(t, second(s.Settle(t.Context(), id, payment))) }
	}
	cancel := func(id session.ID) { _, _, err := s.Cancel(t.Context(), asks, id); must(t, err) }
	read := func(id session.ID) { _, _, err := s.Session(t.Context(), asks, id); must(t, err) }
	publicRead := func(id session.ID) { _, _, err := s.PublicSession(t.Context(), payer(), id); must(t, err) }
	watchedRead := func(id session.ID) { must(t, second(s.WatchedSession(t.Context(), id))) }
	sweep := func(session.ID) { sweepAll(t, s, 7, 10) }
	for end, do := range map[string]func(session.ID){"paid": settle(paid("a")), "failed": settle(failed("a")), "cancelled": cancel} {
		var id session.ID
		messages := messagesDuring(t, server, func() {
			id = mustCreate(t, s, asks, newSession()).Session.ID
			for _, each := range []func(session.ID){read, publicRead, watchedRead, do, do, read, publicRead, watchedRead, settle(paid("b"))} {
				each(id)
			}
		})
		message := "{b07n}:ended " + id.String() + " " + asks.MerchantID
		if want := []string{message, message}; !slices.Equal(messages, want) { // the end, and a late payment
			t.Errorf("%s: published %q, want %q", end, messages, want)
		}
	}
	for end, do := range map[string]func(session.ID){
		"read": read, "read publicly": publicRead, "watched": watchedRead, "paid too late": settle(paid("a")), "swept": sweep,
	} {
		created := mustCreate(t, s, asks, with(newSession(), short)).Session
		due(t, s, created)
		messages := messagesDuring(t, server, func() { do(created.ID); do(created.ID) })
		want := []string{"{b07n}:ended " + created.ID.String() + " " + asks.MerchantID}
		if end == "paid too late" {
			want = append(want, want[0])
		}
		if !slices.Equal(messages, want) {
			t.Errorf("expired, %s: published %q, want %q", end, messages, want)
		}
	}
}

// Without the right to publish a settlement succeeds: watchers only see it later.
func TestSettle_NoRightToPublish(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server)
	must(t, c.Do(t.Context(), "ACL", "SETUSER", "till", "on", ">secret", "~{b*", "+@all", "resetchannels").Err())
	s, asks := open(t, "redis://till:secret@"+server.Addr()), merchantIn(7)
	id := mustCreate(t, s, asks, newSession()).Session.ID
	settled, err := s.Settle(t.Context(), id, paid("a"))
	if err != nil || !settled.Applied {
		t.Errorf("settle: %+v, %v", settled, err)
	}
	if events := sessionEvents(t, c, id); len(events) != 1 {
		t.Errorf("%d events", len(events))
	}
}

// A write that the server rejects changes nothing, and the next try succeeds.
func TestSettle_ServerRejectsWrites(t *testing.T) {
	server := redistest.Start(t)
	s, c := impatient(t, server.URL()), client(t, server)
	pending := mustCreate(t, s, merchantIn(7), newSession()).Session
	asks := merchantIn(7)
	expiring := mustCreate(t, s, asks, with(newSession(), short)).Session
	due(t, s, expiring)
	waiting := func() float64 { return c.ZScore(t.Context(), "{b07n}:expiry", "10").Val() }
	before := waiting()
	rejected := func(why string) {
		t.Helper()
		if got, err := s.Settle(t.Context(), pending.ID, paid("a")); !errors.Is(err, redis.ErrUnavailable) || got.Applied {
			t.Errorf("%s: settle: %+v, %v; want ErrUnavailable", why, got, err)
		}
		if swept, err := s.Sweep(t.Context(), 7, 10); !errors.Is(err, redis.ErrUnavailable) || swept != (store.Swept{}) {
			t.Errorf("%s: sweep: %+v, %v; want ErrUnavailable", why, swept, err)
		}
	}
	for desc, commands := range map[string][2]string{
		"out of memory":        {"CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
		"a replica is missing": {"CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"},
		"a right is missing":   {"ACL SETUSER default -hset", "ACL SETUSER default +hset"},
	} {
		send := func(command string) {
			var words []any
			for word := range strings.FieldsSeq(command) {
				words = append(words, word)
			}
			must(t, c.Do(t.Context(), words...).Err())
		}
		send(commands[0])
		rejected(desc)
		send(commands[1])
	}
	if events := len(sessionEvents(t, c, pending.ID)) + len(sessionEvents(t, c, expiring.ID)); events != 0 || waiting() != before {
		t.Errorf("%d events, and the session is due at %.0f, was at %.0f", events, waiting(), before)
	}
	server.Pause()
	rejected("no answer")
	server.Resume()

	// What waited in the socket may have been done or not; done once more, it has been done once.
	patient := open(t, server.URL())
	if settled, err := patient.Settle(t.Context(), pending.ID, paid("a")); err != nil || !settled.Applied {
		t.Errorf("afterwards: %+v, %v", settled, err)
	}
	sweepAll(t, patient, 7, 10)
	for id, want := range map[session.ID]session.Status{pending.ID: session.Completed, expiring.ID: session.Expired} {
		if events := sessionEvents(t, c, id); len(events) != 1 || events[0].Session.Status != want {
			t.Errorf("recorded %v, want that it is %s", eventKinds(events), want)
		}
	}
}

// Where one session has a wrong key beside it, nothing of it may be half done.
func TestEnd_EventCannotBeRecorded(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	event := merchantTag(asks.MerchantID) + "event:" + feed.SessionEventID(created.ID, feed.MarkEnded)
	must(t, c.Set(t.Context(), event, "text", 0).Err())
	for desc, end := range map[string]func() error{
		"cancel": func() error { _, _, err := s.Cancel(t.Context(), asks, created.ID); return err },
		"settle": func() error { _, err := s.Settle(t.Context(), created.ID, paid("a")); return err },
	} {
		if err := end(); !errors.Is(err, redis.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", desc, err)
		}
		if _, read, err := s.Session(t.Context(), asks, created.ID); err != nil || read.Status != session.Pending {
			t.Errorf("%s: it is %s: %v", desc, read.Status, err)
		}
	}
	must(t, c.Del(t.Context(), event).Err())
	if _, _, err := s.Cancel(t.Context(), asks, created.ID); err != nil {
		t.Errorf("repaired: %v", err)
	}
}

func TestSettle_CorruptSession(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	for desc, harm := range map[string][2]string{
		"an unknown status":                 {"s", "PAID"},
		"a status that is a pattern":        {"s", "%"},
		"an end although it is pending":     {"e", "1"},
		"no amount":                         {"f", "-"},
		"a final status without its end":    {"s", "FAILED"},
		"a record of a refund that is none": {"l:" + bank.Scope("a"), "garbage"},
	} {
		asks := merchant()
		id := mustCreate(t, s, asks, newSession()).Session.ID
		key := merchantTag(asks.MerchantID) + "session:" + id.String()
		if harm[0] == "f" {
			harm[1] = asks.MerchantID + "\t" + harm[1]
		}
		must(t, c.HSet(t.Context(), key, harm[0], harm[1]).Err())
		if got, err := s.Settle(t.Context(), id, failed("a")); !errors.Is(err, redis.ErrCorrupt) || got.Applied {
			t.Errorf("%s: settle: %+v, %v; want ErrCorrupt", desc, got, err)
		}
		if harm[0] == "s" || harm[0] == "e" {
			if _, got, err := s.Cancel(t.Context(), asks, id); !errors.Is(err, redis.ErrCorrupt) || got.Status != "" {
				t.Errorf("%s: cancel: %s, %v; want ErrCorrupt", desc, got.Status, err)
			}
		}
		if events := sessionEvents(t, c, id); len(events) != 0 {
			t.Errorf("%s: recorded %v", desc, eventKinds(events))
		}
	}
}
