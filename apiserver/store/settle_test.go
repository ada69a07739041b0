package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
	"github.com/merchant-operator/merchant-operator/apiserver/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// paid and failed are reports on a session of newSession.
func paid(ref string) session.Payment {
	return session.Payment{Ref: ref, Outcome: session.Completed, AmountCents: 1250}
}

func failed(ref string) session.Payment {
	return session.Payment{Ref: ref, Outcome: session.Failed, AmountCents: 1250, Reason: "no funds"}
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
			[]step{{failed("a"), applied, failure}, {paid("a"), refund, failure}, {paid("a"), refundAgain, failure}, {failed("a"), nothing, ""}},
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
		"contradictions of a refused payment": {
			[]step{{of(999, paid("a")), refund, pending}, {paid("a"), nothing, ""}, {of(999, failed("a")), nothing, ""}, {failed("a"), nothing, ""}, {of(999, paid("a")), refundAgain, pending}},
			[]v1alpha1.WebhookEvent{mismatch},
		},
	} {
		t.Run(desc, func(t *testing.T) {
			replicas := []*store.Store{open(t, shared.URL()), open(t, shared.URL())}
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
				t.Errorf("told of %v, want %v", kindsOf(events), test.events)
			}
		})
	}
}

func TestASettledSessionTellsHow(t *testing.T) {
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
			s.Status, s.PaymentRef, s.PaidAt, s.EndedAt = payment.Outcome, payment.Ref, payment.PaidAt, settled.Session.EndedAt
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
			t.Errorf("%s: told of %v", want, kindsOf(events))
		}
	}
}

func TestPaymentsOfNoSession(t *testing.T) {
	s := open(t, shared.URL())
	for desc, id := range map[string]session.ID{"never made": session.NewID(7), "no id at all": {}} {
		got, err := s.Settle(t.Context(), id, paid("a"))
		if !errors.Is(err, store.ErrNotFound) || !cmp.Equal(got, store.Settlement{}, sameSession) {
			t.Errorf("%s: %+v, %v; want ErrNotFound", desc, got, err)
		}
		if n := client(t, shared).Exists(t.Context(), bucketTagOf(id.Bucket())+"session:"+id.String()).Val(); n != 0 {
			t.Errorf("%s: there is a session now", desc)
		}
	}
}

// pass lets the time pass that keys are kept for; those whose time is over end.
func pass(t *testing.T, c *redis.Client, passed time.Duration) {
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
func TestAReportIsAnsweredAsTheFirstTimeForThirtyDays(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL(), func(o *store.Options) { o.SessionRetention = 24 * time.Hour }), client(t, server)
	asks := merchant()
	type report struct {
		payment session.Payment
		id      session.ID
		first   store.Settlement
	}
	reports := map[string]report{}
	for desc, payment := range map[string]session.Payment{
		"paid": paid("a"), "failed": failed("a"), "late": paid("a"), "another amount": of(7, paid("a")),
	} {
		id := mustCreate(t, s, asks, newSession()).Session.ID
		if desc == "late" {
			_, _, err := s.Cancel(t.Context(), asks, id)
			must(t, err)
		}
		first, err := s.Settle(t.Context(), id, payment)
		must(t, err)
		first.Repeated = true
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
func TestAReportEndsNoSessionSooner(t *testing.T) {
	const kept = 60 * 24 * time.Hour
	server := redistest.Start(t)
	s, c := open(t, server.URL(), func(o *store.Options) { o.SessionRetention = kept }), client(t, server)
	asks := merchant()
	created := mustCreate(t, s, asks, with(newSession(), lasting(24*time.Hour))).Session
	_, err := s.Settle(t.Context(), created.ID, paid("a"))
	must(t, err)
	pass(t, c, kept)
	if _, _, err := s.Session(t.Context(), asks, created.ID); err != nil {
		t.Errorf("after %s: %v", kept, err)
	}
}
