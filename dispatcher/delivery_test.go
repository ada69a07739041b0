package dispatcher

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

func TestAnEventIsTheSameOnEveryAttempt(t *testing.T) {
	s := newScene(t)
	answers := []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusOK}
	shop := newReceiver(t, func(before int, _ *http.Request) int { return answers[min(before, 2)] })
	acme := s.endpointAt(shop.URL, 7)
	id := s.event(t, acme.MerchantID)
	d := s.dispatcher(t)
	stop := start(t, d)
	seen := shop.await(t, 3)
	s.awaitBacklog(t, 7, store.Backlog{})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(shop.all()) != 3 {
		t.Errorf("%d attempts, want 3", len(shop.all()))
	}
	for _, receipt := range seen {
		if receipt.id != id || receipt.body != seen[0].body || receipt.body == "" || receipt.signature == "" {
			t.Errorf("an attempt had id %s and body %s; want id %s and body %s", receipt.id, receipt.body, id, seen[0].body)
		}
	}
	for result, want := range map[string]float64{"status_5xx": 2, "delivered": 1} {
		if got := testutil.ToFloat64(d.metrics.attempts.WithLabelValues(result)); got != want {
			t.Errorf("counted %v attempts as %s, want %v", got, result, want)
		}
	}
	if got := testutil.ToFloat64(d.metrics.events.WithLabelValues("session.cancelled", outcomeDelivered)); got != 1 {
		t.Errorf("counted %v delivered events", got)
	}
}

func TestAnEventThatFailsForTheWholeScheduleIsADeadLetter(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusInternalServerError))
	acme := s.endpointAt(shop.URL, 7)
	id := s.event(t, acme.MerchantID)
	stop := start(t, s.dispatcher(t))
	s.awaitBacklog(t, 7, store.Backlog{Dead: 1})
	_ = stop()
	if n := len(shop.all()); n != 4 { // as many as the schedule has entries
		t.Errorf("%d attempts, want 4", n)
	}
	letters := s.deadLetters(t)
	if len(letters) != 1 || letters[0].Event.ID != id || letters[0].Attempts != 4 || letters[0].Reason != "status_5xx" {
		t.Errorf("dead letters: %+v", letters)
	}
}

// All of it is in the same bucket, and the events of the dead one are all due first.
func TestADeadEndpointDoesNotDelayAnother(t *testing.T) {
	s := newScene(t)
	dead, alive := newReceiver(t, hanging), newReceiver(t, always(http.StatusOK))
	silent, acme := s.endpointAt(dead.URL, 7), s.endpointAt(alive.URL, 7)
	const many = 3 * leaseBatch
	for range many {
		s.event(t, silent.MerchantID)
	}
	id := s.event(t, acme.MerchantID)
	d := s.dispatcher(t, func(o *Options) { o.ShutdownTimeout = time.Millisecond })
	start(t, d)
	if seen := alive.await(t, 1); seen[0].id != id {
		t.Errorf("saw %s, want %s", seen[0].id, id)
	}
	// None of the silent one's attempts has ended: its timeout is far longer than what this test has waited.
	if n := len(dead.all()); n > d.options.Concurrency {
		t.Errorf("%d attempts at once, at most %d are allowed", n, d.options.Concurrency)
	}
	if got := testutil.ToFloat64(d.metrics.attempts.WithLabelValues("timeout")); got != 0 {
		t.Errorf("the good endpoint waited until %v attempts had timed out", got)
	}
}

func TestDispatchersShareTheWork(t *testing.T) {
	s := newScene(t)
	// Each dispatcher makes one attempt at a time, and none is answered before there are two.
	arrived := make(chan struct{}, 10_000)
	both := make(chan struct{})
	shop := newReceiver(t, func(before int, r *http.Request) int {
		arrived <- struct{}{}
		if before > 1 {
			return http.StatusOK
		}
		select {
		case <-both:
		case <-r.Context().Done():
		}
		return http.StatusOK
	})
	acme := s.endpointAt(shop.URL, 7)
	var want []string
	for range 40 {
		want = append(want, s.event(t, acme.MerchantID))
	}
	single := func(o *Options) { o.Concurrency = 1 }
	start(t, s.dispatcher(t, single))
	start(t, s.dispatcher(t, single))
	eventually(t, "both have an attempt under way", func() bool {
		want = append(want, s.event(t, acme.MerchantID)) // one of them may have taken all there was
		return len(arrived) >= 2
	})
	close(both)
	s.awaitBacklog(t, 7, store.Backlog{})
	got := shop.ids()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d attempts for %d events", len(got), len(want))
	}
}

// It never says that it is gone, as when it was killed in mid-delivery.
func TestWhatADispatcherHeldThatVanishedIsDelivered(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	want := []string{s.event(t, acme.MerchantID), s.event(t, acme.MerchantID)}
	vanished, err := s.store.LeaseEvents(t.Context(), 7, store.LeaseRequest{Holder: "vanished", For: 500 * time.Millisecond, Limit: 10})
	if err != nil || len(vanished.Leases) != 2 {
		t.Fatalf("leased %d events: %v", len(vanished.Leases), err)
	}
	start(t, s.dispatcher(t))
	s.awaitBacklog(t, 7, store.Backlog{})
	got := shop.ids()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
}

func TestALeaseThatIsLostUnderWayChangesNothing(t *testing.T) {
	s := newScene(t)
	answer := make(chan struct{})
	shop := newReceiver(t, after(answer, http.StatusInternalServerError))
	acme := s.endpointAt(shop.URL, 7)
	id := s.event(t, acme.MerchantID)
	d := s.dispatcher(t)
	stop := start(t, d)
	shop.await(t, 1)
	s.takeOver(t, id, acme.MerchantID)
	close(answer)
	eventually(t, "the attempt ends", func() bool { return testutil.ToFloat64(d.metrics.leasesLost) == 1 })
	_ = stop()
	s.awaitBacklog(t, 7, store.Backlog{Due: 1})
	if letters := s.deadLetters(t); len(letters) != 0 {
		t.Errorf("dead letters: %+v", letters)
	}
}

// takeOver gives an event that is under way to somebody else, as the end of its lease would.
func (s scene) takeOver(t *testing.T, id, merchantID string) {
	t.Helper()
	bucket := session.BucketOf(merchantID)
	s.hasten(t, bucket, id)
	leased, err := s.store.LeaseEvents(t.Context(), bucket, store.LeaseRequest{Holder: "another", For: time.Hour, Limit: 1})
	if err != nil || len(leased.Leases) != 1 {
		t.Fatalf("took over %d events: %v", len(leased.Leases), err)
	}
}
