package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// refundEvents returns the refunds of a session's events.
func refundEvents(events []feed.Event) (refunds []feed.Refund) {
	for _, event := range events {
		if event.Session.Refund != nil {
			refunds = append(refunds, *event.Session.Refund)
		}
	}
	return refunds
}

// Two replicas confirm refunds in turn. card-1 completed the session with 1250, card-2 was refused with 1250 and card-3 with 7.
func TestRefund(t *testing.T) {
	type step struct {
		refund session.Refund
		want   error // errRepeated: a repeat
	}
	for name, test := range map[string]struct {
		steps    []step
		refunded int64 // what the payer's page shows
		events   []feed.Refund
	}{
		"whole": {
			[]step{{refunding("card-1", "r1", 1250), nil}, {refunding("card-1", "r2", 1), store.ErrRefundExceedsPayment}}, 1250,
			[]feed.Refund{{Refund: refunding("card-1", "r1", 1250), Currency: "EUR", PaymentCents: 1250, RefundedCents: 1250}},
		},
		"in parts": {
			[]step{{refunding("card-1", "r1", 500), nil}, {refunding("card-1", "r2", 751), store.ErrRefundExceedsPayment}, {refunding("card-1", "r2", 750), nil}}, 1250,
			[]feed.Refund{
				{Refund: refunding("card-1", "r1", 500), Currency: "EUR", PaymentCents: 1250, RefundedCents: 500},
				{Refund: refunding("card-1", "r2", 750), Currency: "EUR", PaymentCents: 1250, RefundedCents: 1250},
			},
		},
		"repeated": {
			[]step{{refunding("card-1", "r1", 500), nil}, {refunding("card-1", "r1", 500), errRepeated}, {refunding("card-1", "r2", 750), nil}, {refunding("card-1", "r1", 500), errRepeated}}, 1250,
			[]feed.Refund{
				{Refund: refunding("card-1", "r1", 500), Currency: "EUR", PaymentCents: 1250, RefundedCents: 500},
				{Refund: refunding("card-1", "r2", 750), Currency: "EUR", PaymentCents: 1250, RefundedCents: 1250},
			},
		},
		"another content": {
			[]step{
				{refunding("card-1", "r1", 500), nil}, {refunding("card-1", "r1", 501), store.ErrRefundConflict},
				{refunding("card-2", "r1", 500), store.ErrRefundConflict}, {refunding("none", "r1", 500), store.ErrRefundConflict},
			}, 500,
			[]feed.Refund{{Refund: refunding("card-1", "r1", 500), Currency: "EUR", PaymentCents: 1250, RefundedCents: 500}},
		},
		"refused payments": {
			[]step{{refunding("card-2", "r1", 1250), nil}, {refunding("card-3", "r2", 8), store.ErrRefundExceedsPayment}, {refunding("card-3", "r2", 7), nil}, {refunding("card-2", "r1", 1250), errRepeated}}, 0,
			[]feed.Refund{
				{Refund: refunding("card-2", "r1", 1250), Currency: "EUR", PaymentCents: 1250, RefundedCents: 1250},
				{Refund: refunding("card-3", "r2", 7), Currency: "EUR", PaymentCents: 7, RefundedCents: 7},
			},
		},
		"unknown payment": {[]step{{refunding("card-4", "r1", 1), store.ErrNoPayment}, {refunding("card-1", "r1", 1), nil}}, 1, []feed.Refund{
			{Refund: refunding("card-1", "r1", 1), Currency: "EUR", PaymentCents: 1250, RefundedCents: 1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
			asks := merchant()
			id := mustCreate(t, replicas[0], asks, newSession()).Session.ID
			for _, payment := range []session.Payment{of(7, paid("card-3")), paid("card-1"), paid("card-2")} {
				must(t, second(replicas[0].Settle(t.Context(), id, by(rail, payment))))
			}
			_, before, err := replicas[0].Session(t.Context(), asks, id)
			must(t, err)
			first := map[string]time.Time{}
			for i, step := range test.steps {
				got, err := replicas[i%2].Refund(t.Context(), id, step.refund)
				if err == nil && got.Repeated {
					err = errRepeated
				}
				if !errors.Is(err, step.want) {
					t.Fatalf("step %d: %+v, %v; want %v", i, got, err, step.want)
				}
				switch at, known := first[step.refund.Ref]; {
				case err == nil && !known:
					first[step.refund.Ref] = got.At
				case errors.Is(err, errRepeated) && !got.At.Equal(at):
					t.Errorf("step %d: recorded at %s, and before at %s", i, got.At, at)
				}
			}
			if diff := cmp.Diff(test.events, refundEvents(sessionEvents(t, client(t, shared), id)), cmpopts.IgnoreFields(session.Refund{}, "At")); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			_, after, err := replicas[1].Session(t.Context(), asks, id)
			must(t, err)
			if diff := cmp.Diff(before, after, sameSession); diff != "" || after.Status != session.Completed {
				t.Errorf("the session (-before +after):\n%s", diff)
			}
			if _, public, err := replicas[1].PublicSession(t.Context(), payer(), id); err != nil || public.RefundedCents != test.refunded {
				t.Errorf("the payer's page shows %d (%v), want %d", public.RefundedCents, err, test.refunded)
			}
		})
	}
}

// A payment without money cannot be refunded, nor one of a session that does not exist, nor one that another rail has reported.
func TestRefund_NothingMoved(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	created := func(reports ...session.Payment) session.ID {
		id := mustCreate(t, s, asks, newSession()).Session.ID
		for _, report := range reports {
			must(t, second(s.Settle(t.Context(), id, by(rail, report))))
		}
		return id
	}
	test := mustCreate(t, s, with(asks, inTestMode), newSession()).Session.ID
	must(t, second(s.SettleTest(t.Context(), test, paid("card-1"))))
	for name, test := range map[string]struct {
		id   session.ID
		rail session.Rail
		want error
	}{
		"pending":      {created(), rail, store.ErrNoPayment},
		"failed":       {created(failed("card-1")), rail, store.ErrNoPayment},
		"another rail": {created(paid("card-1")), "another", store.ErrNoPayment},
		"no session":   {session.NewID(asks.MerchantID, false), rail, store.ErrNotFound},
		"zero":         {session.ID{}, rail, store.ErrNotFound},
		"test mode":    {test, rail, store.ErrNotFound},
	} {
		refund := refunding("card-1", "r1", 1)
		refund.Rail = test.rail
		if got, err := s.Refund(t.Context(), test.id, refund); !errors.Is(err, test.want) {
			t.Errorf("%s: %+v, %v; want %v", name, got, err, test.want)
		}
	}
	if _, err := s.Refund(t.Context(), created(failed("card-1"), of(99, paid("card-1"))), refunding("card-1", "r1", 99)); err != nil {
		t.Errorf("a payment that failed and then moved money: %v", err)
	}
}

// A rail gets an error at the bound, for the money has moved. It takes no room from another one.
func TestRefund_Bounded(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	must(t, second(s.Settle(t.Context(), id, by(rail, paid("card-1")))))
	for i := range 100 {
		must(t, second(s.Refund(t.Context(), id, refunding("card-1", fmt.Sprint(i), 1))))
	}
	if _, err := s.Refund(t.Context(), id, refunding("card-1", "100", 1)); !errors.Is(err, store.ErrTooManyRefunds) {
		t.Errorf("one more: %v", err)
	}
	if got, err := s.Refund(t.Context(), id, refunding("card-1", "99", 1)); err != nil || !got.Repeated {
		t.Errorf("the last one again: %+v, %v", got, err)
	}
	must(t, second(s.Settle(t.Context(), id, by(bank, paid("card-1")))))
	refund := refunding("card-1", "1", 1250)
	refund.Rail = bank
	if got, err := s.Refund(t.Context(), id, refund); err != nil || got.Repeated {
		t.Errorf("one of another rail: %+v, %v", got, err)
	}
}

// A story lists the refunds of each payment, and so do the reads of merchant and rail.
func TestRefund_Story(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	for _, payment := range []session.Payment{paid("card-1"), paid("card-2"), paid("card-3")} {
		must(t, second(s.Settle(t.Context(), id, by(rail, payment))))
	}
	for _, refund := range []session.Refund{refunding("card-1", "r1", 500), refunding("card-2", "r2", 1250), refunding("card-1", "r3", 1)} {
		must(t, second(s.Refund(t.Context(), id, refund)))
	}
	ignoreTimes := cmpopts.IgnoreFields(session.Refund{}, "At")
	want := session.Story{
		Refunds: []session.Refund{refunding("card-1", "r1", 500), refunding("card-1", "r3", 1)},
		Refused: []session.RefusedPayment{
			{Payment: in("EUR", by(rail, paid("card-2"))), Decision: session.Late, Refunds: []session.Refund{refunding("card-2", "r2", 1250)}},
			{Payment: in("EUR", by(rail, paid("card-3"))), Decision: session.Late},
		},
	}
	for name, read := range map[string]func() (session.Story, error){
		"story":    func() (session.Story, error) { return s.ReadStory(t.Context(), id) },
		"rail":     func() (session.Story, error) { read, err := s.Payments(t.Context(), id); return read.Story, err },
		"merchant": func() (session.Story, error) { _, story, err := s.Story(t.Context(), asks, id); return story, err },
	} {
		got, err := read()
		must(t, err)
		want.Session = got.Session
		if diff := cmp.Diff(want, got, sameSession, ignoreTimes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	c, key, field := client(t, shared), merchantTag(asks.MerchantID)+"session:"+id.String(), "b:"+rail.Scope("r9")
	for _, garbage := range []string{"", "x 1 card-1", "1 x card-1", "1 1", "0 1 card-1"} {
		must(t, c.HSet(t.Context(), key, field, garbage).Err())
		if _, err := s.ReadStory(t.Context(), id); !errors.Is(err, redis.ErrCorrupt) {
			t.Errorf("a refund %q: %v", garbage, err)
		}
	}
	must(t, c.HSet(t.Context(), key, field, "").Err())
	if _, err := s.Refund(t.Context(), id, refunding("card-1", "r4", 1)); !errors.Is(err, redis.ErrCorrupt) {
		t.Errorf("a refund beside an unreadable one: %v", err)
	}
}

// A refund of a refused payment leaves the hold of another payment, and a rail sees both, and what failed meanwhile.
func TestRefund_HeldSession(t *testing.T) {
	s := open(t, shared.URL())
	id := mustCreate(t, s, merchant(), newSession()).Session.ID
	until, err := s.Hold(t.Context(), id, holding(rail, "card-1"))
	must(t, err)
	for _, payment := range []session.Payment{failed("card-2"), of(7, paid("card-3"))} {
		must(t, second(s.Settle(t.Context(), id, by(rail, payment))))
	}
	must(t, second(s.Refund(t.Context(), id, refunding("card-3", "r1", 7))))
	got, err := s.Payments(t.Context(), id)
	must(t, err)
	if !got.HeldUntil.Equal(until) || got.Session.Status != session.Pending {
		t.Errorf("%s, held until %s, want %s", got.Session.Status, got.HeldUntil, until)
	}
	if len(got.Failed) != 1 || got.Failed[0].Ref != "card-2" {
		t.Errorf("failed: %+v", got.Failed)
	}
	if len(got.Refused) != 1 || session.SumRefunds(got.Refused[0].Refunds) != 7 {
		t.Errorf("refused: %+v", got.Refused)
	}
}

// A deleted merchant receives no event.
func TestRefund_MerchantDeleted(t *testing.T) {
	s, asks := open(t, shared.URL()), merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	must(t, second(s.SettleDeleted(t.Context(), id, by(rail, paid("card-1")))))
	for _, repeated := range []bool{false, true} {
		if got, err := s.RefundDeleted(t.Context(), id, refunding("card-1", "r1", 1250)); err != nil || got.Repeated != repeated {
			t.Errorf("%+v, %v; want repeated %t", got, err, repeated)
		}
	}
	if events := sessionEvents(t, client(t, shared), id); len(events) != 0 {
		t.Errorf("recorded %v", eventKinds(events))
	}
	story, err := s.ReadStory(t.Context(), id)
	must(t, err)
	if len(story.Refused) != 1 || session.SumRefunds(story.Refused[0].Refunds) != 1250 {
		t.Errorf("refused: %+v", story.Refused)
	}
}

// However many refunds are confirmed at once, on two replicas, no more is recorded than was paid.
func TestRefund_RacesNeverExceedThePayment(t *testing.T) {
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	const refunds, cents = 40, 100 // 12 of them fit into 1250
	id := mustCreate(t, replicas[0], merchant(), newSession()).Session.ID
	must(t, second(replicas[0].Settle(t.Context(), id, by(rail, paid("card-1")))))
	got, errs := make([]store.Refunded, refunds), make([]error, refunds)
	var confirming sync.WaitGroup
	for i := range refunds {
		confirming.Go(func() { // each of 20 refunds twice
			got[i], errs[i] = replicas[i%2].Refund(t.Context(), id, refunding("card-1", fmt.Sprint(i/2), cents))
		})
	}
	confirming.Wait()
	recorded, answers := 0, map[int]bool{}
	for i := range refunds {
		if errs[i] != nil && !errors.Is(errs[i], store.ErrRefundExceedsPayment) {
			t.Fatal(errs[i])
		}
		if errs[i] == nil {
			answers[i/2] = true
			if !got[i].Repeated {
				recorded++
			}
		}
	}
	story, err := replicas[0].ReadStory(t.Context(), id)
	must(t, err)
	events := eventKinds(sessionEvents(t, client(t, shared), id))
	if recorded != 12 || len(answers) != 12 || len(story.Refunds) != 12 || len(events) != 13 || events[12] != v1alpha1.EventPaymentRefunded {
		t.Errorf("%d refunds were recorded, %d answered so, %d are listed, events %v; want 12", recorded, len(answers), len(story.Refunds), events)
	}
}

// A rail that had no answer because the server died repeats its confirmation at the one that took over, and money is counted once.
func TestRefund_RepeatedAfterFailover(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := follow(t, master)
	s, hasty := open(t, master.URL(), copied(1, patience)), open(t, master.URL(), copied(1, shortly))
	id := mustCreate(t, s, merchant(), newSession()).Session.ID
	must(t, second(s.Settle(t.Context(), id, by(rail, paid("card-1")))))
	must(t, second(s.Refund(t.Context(), id, refunding("card-1", "r1", 500))))

	replica.Pause()
	for range 2 { // neither does the repeat promise more
		if _, err := hasty.Refund(t.Context(), id, refunding("card-1", "r2", 750)); !errors.Is(err, redis.ErrUnavailable) {
			t.Errorf("with a replica that is frozen: %v, want ErrUnavailable", err)
		}
	}
	replica.Resume()
	if got, err := s.Refund(t.Context(), id, refunding("card-1", "r2", 750)); err != nil || !got.Repeated {
		t.Errorf("with a replica that follows again: %+v, %v", got, err)
	}
	master.Kill()
	must(t, client(t, replica).ReplicaOf(t.Context(), "no", "one").Err())
	promoted := open(t, replica.URL())
	for ref, cents := range map[string]int64{"r1": 500, "r2": 750} {
		if got, err := promoted.Refund(t.Context(), id, refunding("card-1", ref, cents)); err != nil || !got.Repeated {
			t.Errorf("%s at the replica that took over: %+v, %v", ref, got, err)
		}
	}
	if events := refundEvents(sessionEvents(t, client(t, replica), id)); len(events) != 2 {
		t.Errorf("events: %+v", events)
	}
}
