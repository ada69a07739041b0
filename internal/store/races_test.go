package store_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// A merchant cancels on one replica while the payer pays on the other.
func TestRacesOfCancelAndSettleHaveOneTruth(t *testing.T) {
	const races = 40
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	c := client(t, shared)
	type race struct {
		asks      store.Admission
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
		if got := kindsOf(eventsOf(t, c, r.id)); !slices.Equal(got, events) {
			t.Errorf("race %d: recorded %v, want %v", i, got, events)
		}
	}
	t.Logf("cancel won %d of %d races", cancelled, races)
}

// Rails repeat themselves, and not always after the answer has come.
func TestConcurrentReportsOfOnePaymentCountOnce(t *testing.T) {
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
		if events := eventsOf(t, client(t, shared), id); first != 1 || len(events) != 1 {
			t.Errorf("%+v: %d reports counted, and %d events tell of it", payment, first, len(events))
		}
	}
}
