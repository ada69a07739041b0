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

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

// What two rails and the merchant do to a session in turn. newSession lasts for 15 minutes.
func TestHold(t *testing.T) {
	type call func(t *testing.T, s *services, asks admission.Request, id session.ID) error
	hold := func(hold store.Hold) call {
		return func(t *testing.T, s *services, _ admission.Request, id session.ID) error {
			t.Helper()
			until, err := s.Hold(t.Context(), id, hold)
			if err == nil && until.IsZero() != (hold.Duration == 0) {
				t.Errorf("held for %s until %s", hold.Duration, until)
			}
			return err
		}
	}
	lasting := func(d time.Duration) call { return hold(store.Hold{Rail: bank, Ref: "1", Duration: d}) }
	inactive := func(ref string) call {
		return hold(store.Hold{Rail: card, Ref: ref, Duration: time.Minute, MerchantNotActive: true})
	}
	cancel := func(t *testing.T, s *services, asks admission.Request, id session.ID) error {
		t.Helper()
		_, _, err := s.Cancel(t.Context(), asks, id)
		return err
	}
	report := func(payment session.Payment, want store.Settlement, status session.Status) call {
		return func(t *testing.T, s *services, _ admission.Request, id session.ID) error {
			t.Helper()
			got, err := s.Settle(t.Context(), id, payment)
			if err == nil && got.Session.Status != status {
				t.Errorf("%+v: the session is %s, want %s", payment, got.Session.Status, status)
			}
			got.Session = session.Session{}
			if diff := cmp.Diff(want, got, sameSession); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", payment, diff)
			}
			return err
		}
	}
	const pending, completed, failure, cancelled = session.Pending, session.Completed, session.Failed, session.Cancelled
	applied, nothing, refund := store.Settlement{Applied: true}, store.Settlement{}, store.Settlement{RefundRequired: true}
	again := store.Settlement{Applied: true, Repeated: true}
	held := store.HeldError{}
	mine, theirs := holding(bank, "1"), holding(card, "1")
	type step struct {
		call call
		want error
	}
	for name, test := range map[string]struct {
		steps  []step
		events []v1alpha1.WebhookEvent
	}{
		"another payment of the rail, and another rail": {
			[]step{{hold(mine), nil}, {hold(holding(bank, "2")), held}, {hold(theirs), held}, {hold(mine), nil}}, nil,
		},
		"released by the holder only": {
			[]step{
				{hold(mine), nil}, {hold(releasing(card, "1")), held}, {hold(releasing(bank, "2")), held}, {hold(releasing(bank, "1")), nil},
				{hold(releasing(bank, "1")), nil}, {hold(theirs), nil},
			}, nil,
		},
		"cancel": {
			[]step{{hold(mine), nil}, {cancel, held}, {hold(releasing(bank, "1")), nil}, {cancel, nil}, {hold(mine), store.ErrNotHoldable}, {hold(releasing(bank, "1")), nil}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCancelled},
		},
		"it would outlive the session": {
			[]step{{lasting(time.Hour), store.ErrExpiresTooSoon}, {lasting(time.Minute), nil}, {lasting(15*time.Minute + time.Second), store.ErrExpiresTooSoon}, {hold(theirs), held}}, nil,
		},
		"too long": {
			[]step{{lasting(10*time.Minute + time.Millisecond), store.ErrHoldTooLong}, {lasting(10 * time.Minute), nil}, {hold(mine), nil}}, nil,
		},
		"the merchant is not active": {
			[]step{{inactive("1"), admission.ErrMerchantNotActive}, {hold(mine), nil}, {inactive("1"), admission.ErrMerchantNotActive}, {report(paid("1"), applied, completed), nil}, {inactive("1"), store.ErrNotHoldable}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted},
		},
		"the holder pays": {
			[]step{{hold(mine), nil}, {report(paid("1"), applied, completed), nil}, {hold(mine), store.ErrReferenceUsed}, {hold(theirs), store.ErrNotHoldable}, {cancel, store.ErrSessionEnded}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted},
		},
		"the holder fails": {
			[]step{{hold(mine), nil}, {report(failed("1"), applied, failure), nil}, {hold(mine), store.ErrReferenceUsed}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed},
		},
		"the holder pays another amount": {
			[]step{{hold(mine), nil}, {report(of(7, paid("1")), refund, pending), nil}, {hold(mine), store.ErrReferenceUsed}, {hold(theirs), nil}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventPaymentMismatch},
		},
		"the holder fails with another amount": {
			[]step{{hold(mine), nil}, {report(of(7, failed("1")), nothing, pending), nil}, {hold(theirs), nil}}, nil,
		},
		"another one pays": {
			[]step{{hold(mine), nil}, {report(by(card, paid("1")), applied, completed), nil}, {report(paid("1"), refund, completed), nil}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted, v1alpha1.EventLatePayment},
		},
		"another one pays another amount": {
			[]step{{hold(mine), nil}, {report(of(7, by(card, paid("1"))), refund, pending), nil}, {hold(theirs), store.ErrReferenceUsed}, {hold(holding(card, "2")), held}, {report(paid("1"), applied, completed), nil}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventPaymentMismatch, v1alpha1.EventSessionCompleted},
		},
		"another one fails": {
			[]step{
				{hold(mine), nil}, {report(by(card, failed("1")), nothing, pending), nil}, {hold(theirs), store.ErrReferenceUsed}, {hold(mine), nil},
				{hold(releasing(bank, "1")), nil}, {report(by(card, failed("1")), nothing, pending), nil}, {report(of(7, by(card, failed("1"))), nothing, pending), store.ErrPaymentConflict},
				{report(in("USD", by(card, failed("1"))), nothing, pending), store.ErrPaymentConflict}, {report(by(card, paid("1")), applied, completed), nil},
				{report(by(card, failed("1")), nothing, completed), nil}, {report(by(card, paid("1")), again, completed), nil},
			},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted},
		},
		"another one fails, and the holder too": {
			[]step{{hold(mine), nil}, {report(failed("2"), nothing, pending), nil}, {report(failed("1"), applied, failure), nil}, {report(failed("2"), nothing, failure), nil}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed},
		},
		"cancelled, then paid": {
			[]step{{hold(mine), nil}, {hold(releasing(bank, "1")), nil}, {cancel, nil}, {report(paid("1"), refund, cancelled), nil}, {hold(mine), store.ErrReferenceUsed}},
			[]v1alpha1.WebhookEvent{v1alpha1.EventSessionCancelled, v1alpha1.EventLatePayment},
		},
	} {
		t.Run(name, func(t *testing.T) {
			replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
			asks := merchant()
			id := mustCreate(t, replicas[0], asks, newSession()).Session.ID
			for i, step := range test.steps {
				err := step.call(t, replicas[i%2], asks, id)
				if busy, ok := errors.AsType[store.HeldError](err); ok {
					if busy.Left <= 0 || busy.Left > time.Minute {
						t.Errorf("step %d: held for %s", i, busy.Left)
					}
					err = held
				}
				if !errors.Is(err, step.want) {
					t.Fatalf("step %d: %v, want %v", i, err, step.want)
				}
			}
			if events := eventKinds(sessionEvents(t, client(t, shared), id)); !slices.Equal(events, test.events) {
				t.Errorf("recorded %v, want %v", events, test.events)
			}
		})
	}
}

// A hold that is over, or cannot be read, lets others pay. Who reads sees holds that are in force.
func TestHold_Over(t *testing.T) {
	s, asks, c := open(t, shared.URL()), merchant(), client(t, shared)
	id := mustCreate(t, s, asks, newSession()).Session.ID
	key := merchantTag(asks.MerchantID) + "session:" + id.String()
	until, err := s.Hold(t.Context(), id, holding(bank, "1"))
	must(t, err)
	if read, err := s.Payments(t.Context(), id); err != nil || !read.HeldUntil.Equal(until) {
		t.Errorf("a rail reads that it is held until %s, %v; want %s", read.HeldUntil, err, until)
	}
	for i, hold := range []string{"1 " + bank.Scope("1"), "x " + bank.Scope("1"), "x"} {
		must(t, c.HSet(t.Context(), key, "h", hold).Err())
		if read, err := s.Payments(t.Context(), id); err != nil || !read.HeldUntil.IsZero() {
			t.Errorf("%q: a rail reads that it is held until %s, %v", hold, read.HeldUntil, err)
		}
		must(t, second(s.Hold(t.Context(), id, holding(card, fmt.Sprint(i)))))
	}
}

// Time passes for a session that is held, as for any: no hold lasts beyond its expiry.
func TestHold_ExpiredSession(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	created := mustCreate(t, s, asks, with(newSession(), short)).Session
	due(t, s, created)
	if _, err := s.Hold(t.Context(), created.ID, holding(bank, "1")); !errors.Is(err, store.ErrNotHoldable) {
		t.Errorf("it has expired: %v", err)
	}
	if events := eventKinds(sessionEvents(t, client(t, shared), created.ID)); !slices.Equal(events, []v1alpha1.WebhookEvent{v1alpha1.EventSessionExpired}) {
		t.Errorf("recorded %v", events)
	}
}

func TestHold_NotFound(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	for name, id := range map[string]session.ID{
		"never made": session.NewID(asks.MerchantID, false), "no id at all": {}, "test mode": mustCreate(t, s, with(asks, inTestMode), newSession()).Session.ID,
	} {
		if until, err := s.Hold(t.Context(), id, holding(bank, "1")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %s, %v", name, until, err)
		}
	}
}

// A rail that reports failures without end gets the same answer for each, and Redis keeps some of them. It ends no session, and
// takes no room from others.
func TestHold_FailuresAreBounded(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	must(t, second(s.Hold(t.Context(), id, holding(bank, "1"))))
	const reports = 600
	stored := 0
	for i := range reports {
		got, err := s.Settle(t.Context(), id, by(card, failed(fmt.Sprint("failure-", i))))
		if err != nil || got.Applied || got.RefundRequired || got.Session.Status != session.Pending {
			t.Fatalf("failure %d: %+v, %v", i, got, err)
		}
		if !got.Unstored {
			stored++
		}
	}
	if got, err := s.Settle(t.Context(), id, by("third", failed("1"))); err != nil || got.Unstored {
		t.Errorf("the failure of another rail: %+v, %v", got, err)
	}
	read, err := s.Payments(t.Context(), id)
	if err != nil || len(read.Failed) != stored+1 || stored < 50 || stored == reports {
		t.Errorf("%d of %d failures are stored, a rail reads %d, %v", stored, reports, len(read.Failed), err)
	}
	must(t, second(s.Hold(t.Context(), id, releasing(bank, "1"))))
	for _, ref := range []string{"failure-0", fmt.Sprint("failure-", reports-1)} {
		if got, err := s.Settle(t.Context(), id, by(card, failed(ref))); err != nil || got.Applied || got.Session.Status != session.Pending {
			t.Errorf("%s, repeated after the hold: %+v, %v", ref, got, err)
		}
	}
	must(t, second(s.Hold(t.Context(), id, holding(card, "2"))))
	if got, err := s.Settle(t.Context(), id, by(card, failed("2"))); err != nil || !got.Applied {
		t.Errorf("the holder fails: %+v, %v", got, err)
	}
}

// A rail holds a session for 10 minutes in all, be it for one payment or for many. What it releases and what others hold does not count.
func TestHold_TenMinutesOfEachRail(t *testing.T) {
	for name, refs := range map[string]int{"one payment": 1, "two in turn": 2} {
		t.Run(name, func(t *testing.T) {
			s, asks := open(t, shared.URL()), merchant()
			id := mustCreate(t, s, asks, with(newSession(), func(n *store.NewSession) { n.Lifetime = 24 * time.Hour })).Session.ID
			hold := func(rail session.Rail, n int, d time.Duration) error {
				return second(s.Hold(t.Context(), id, store.Hold{Rail: rail, Ref: fmt.Sprint(n % refs), Duration: d}))
			}
			for n := range 20 {
				must(t, hold(card, n, 2*time.Minute))
				must(t, hold(card, n, 2*time.Minute)) // renewed at once: two minutes from now on
				must(t, hold(card, n, 0))
			}
			for n := range 4 {
				must(t, hold(card, n, 2*time.Minute))
				endHold(t, id)
			}
			if err := hold(card, 0, 2*time.Minute+time.Millisecond); !errors.Is(err, store.ErrHoldTooLong) {
				t.Errorf("for more than 10 minutes: %v", err)
			}
			must(t, hold(card, 0, time.Minute)) // the machine may be slow
			endHold(t, id)
			must(t, hold(bank, 0, 2*time.Minute))
			if got, err := s.Settle(t.Context(), id, by(card, paid("0"))); err != nil || !got.Applied {
				t.Errorf("money has moved: %+v, %v", got, err)
			}
		})
	}
}

// endHold has the time of a hold pass.
func endHold(t *testing.T, id session.ID) {
	t.Helper()
	c, key := client(t, shared), bucketTag(id.Bucket())+"session:"+id.String()
	hold, err := c.HGet(t.Context(), key, "h").Result()
	must(t, err)
	_, rest, _ := strings.Cut(hold, " ")
	must(t, c.HSet(t.Context(), key, "h", "1 "+rest).Err())
}

// Of all concurrent payments one may proceed; then the session cannot be cancelled, and no money goes back.
func TestHold_OneOfMany(t *testing.T) {
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	for range 10 {
		asks := merchant()
		id := mustCreate(t, replicas[0], asks, newSession()).Session.ID
		const payers = 12
		errs, start := make([]error, payers), make(chan struct{})
		var paying sync.WaitGroup
		for i := range payers {
			paying.Go(func() {
				<-start
				errs[i] = holdAndPay(t.Context(), replicas[i%2], id, []session.Rail{bank, card}[i%2], fmt.Sprint(i/2))
			})
		}
		close(start)
		paying.Wait()
		paidBy := 0
		for i, err := range errs {
			_, busy := errors.AsType[store.HeldError](err)
			if err == nil {
				paidBy++
			} else if !busy && !errors.Is(err, store.ErrNotHoldable) {
				t.Errorf("payer %d: %v", i, err)
			}
		}
		if events := eventKinds(sessionEvents(t, client(t, shared), id)); paidBy != 1 || !slices.Equal(events, []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted}) {
			t.Errorf("%d have paid, and recorded is %v", paidBy, events)
		}
	}
}

var errRefund = errors.New("the money goes back")

func holdAndPay(ctx context.Context, s *services, id session.ID, rail session.Rail, ref string) error {
	if _, err := s.Hold(ctx, id, holding(rail, ref)); err != nil {
		return err
	}
	got, err := s.Settle(ctx, id, by(rail, paid(ref)))
	if err == nil && !got.Applied {
		return errRefund
	}
	return err
}
