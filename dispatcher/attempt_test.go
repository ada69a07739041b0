package dispatcher

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// Each attempt sends the same id and the same bytes, so that a receiver recognizes the event.
func TestAttempt_RepeatsTheSameBytes(t *testing.T) {
	f := newFixture(t)
	answers := []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusOK}
	shop := dispatchertest.NewReceiver(t, func(before int, _ *http.Request) int { return answers[min(before, 2)] })
	acme := f.EndpointAt(shop.URL, 7)
	id := f.Event(t, acme.MerchantID)
	d := f.dispatcher(t)
	stop := start(t, d)
	seen := shop.Await(t, 3)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(shop.IDs()) != 3 {
		t.Errorf("%d attempts, want 3", len(shop.IDs()))
	}
	if len(seen) != 1 || seen[0].ID != id || seen[0].Attempts != 3 || !seen[0].Verified {
		t.Errorf("the attempts were %+v, want three of %s with the same bytes", seen, id)
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

// The former URL answers 410 when there is another one already. The event goes there, and the new endpoint is not disabled.
func TestAttempt_FormerURLGone(t *testing.T) {
	f := newFixture(t)
	asked, changed := make(chan struct{}), make(chan struct{})
	former := dispatchertest.NewReceiver(t, func(int, *http.Request) int {
		close(asked)
		<-changed
		return http.StatusGone
	})
	present := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	acme := f.EndpointAt(former.URL, 7)
	f.Event(t, acme.MerchantID)
	stop := start(t, f.dispatcher(t))
	<-asked
	moved := f.Moved(acme, "moved")
	moved.URL = present.URL
	f.Index.Put(moved)
	close(changed)
	present.Await(t, 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	f.Event(t, acme.MerchantID)
	present.Await(t, 2)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if letters := f.DeadLetters(t); len(letters) != 0 {
		t.Errorf("dead letters: %+v", letters)
	}
}

// Another dispatcher has heard of another URL while the former one, which this dispatcher still knows, answers 410.
func TestAttempt_FormerURLGoneWithALateWatch(t *testing.T) {
	f := newFixture(t)
	var acme, moved endpoints.Endpoint
	former := dispatchertest.NewReceiver(t, func(before int, r *http.Request) int {
		if before == 0 {
			return http.StatusOK
		}
		if _, err := f.Outbox.ResumeEndpoint(r.Context(), acme.MerchantID, moved.Noted(0)); err != nil {
			t.Error(err)
		}
		return http.StatusGone
	})
	present := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	acme = f.EndpointAt(former.URL, 7)
	moved = acme
	moved.URL, moved.Target, acme.Generation, moved.Generation = present.URL, "moved", 1, 2
	f.Index.Put(acme)
	d := f.dispatcher(t)
	stop := start(t, d)
	f.Event(t, acme.MerchantID)
	former.Await(t, 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	id := f.Event(t, acme.MerchantID)
	dispatchertest.Eventually(t, "the event is left to others", func() bool {
		return testutil.ToFloat64(d.metrics.deferred.WithLabelValues(deferredChanged)) >= 2 // of the attempt, and of the next lease
	})
	if state := f.State(t, acme); state.Disabled() || state.Target != moved.Target {
		t.Errorf("the endpoint is %+v", state)
	}
	f.Index.Put(moved) // the watch has caught up
	if seen := present.Await(t, 1); seen[0].ID != id {
		t.Errorf("saw %s, want %s", seen[0].ID, id)
	}
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := len(former.IDs()); n != 2 {
		t.Errorf("%d attempts at the former URL, want 2", n)
	}
	if letters := f.DeadLetters(t); len(letters) != 0 {
		t.Errorf("dead letters: %+v", letters)
	}
}

// An event that fails for the whole schedule is a dead letter.
func TestAttempt_DeadLetterAfterTheSchedule(t *testing.T) {
	f := newFixture(t)
	shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusInternalServerError))
	acme := f.EndpointAt(shop.URL, 7)
	id := f.Event(t, acme.MerchantID)
	stop := start(t, f.dispatcher(t))
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 1})
	_ = stop()
	if n := len(shop.IDs()); n != 4 { // as many as the schedule has entries
		t.Errorf("%d attempts, want 4", n)
	}
	letters := f.DeadLetters(t)
	if len(letters) != 1 || letters[0].Event.ID != id || letters[0].Attempts != 4 || letters[0].Reason != "status_5xx" {
		t.Errorf("dead letters: %+v", letters)
	}
}

// All of it is in the same bucket, and the events of the dead one are all due first.
func TestAttempt_HangingEndpointDelaysNoOther(t *testing.T) {
	f := newFixture(t)
	dead, alive := dispatchertest.NewReceiver(t, dispatchertest.Hanging), dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	silent, acme := f.EndpointAt(dead.URL, 7), f.EndpointAt(alive.URL, 7)
	const many = 3 * leaseBatch
	for range many {
		f.Event(t, silent.MerchantID)
	}
	id := f.Event(t, acme.MerchantID)
	d := f.dispatcher(t, func(o *Options) { o.ShutdownTimeout = time.Millisecond })
	start(t, d)
	if seen := alive.Await(t, 1); seen[0].ID != id {
		t.Errorf("saw %s, want %s", seen[0].ID, id)
	}
	// None of the silent one's attempts has ended: its timeout is far longer than this test.
	if n := len(dead.IDs()); n > d.options.Concurrency {
		t.Errorf("%d attempts at once, at most %d are allowed", n, d.options.Concurrency)
	}
	if got := testutil.ToFloat64(d.metrics.attempts.WithLabelValues("timeout")); got != 0 {
		t.Errorf("the good endpoint waited until %v attempts had timed out", got)
	}
}

// The result of an attempt whose lease was lost in the meantime changes nothing.
func TestAttempt_LostLeaseChangesNothing(t *testing.T) {
	f := newFixture(t)
	answer := make(chan struct{})
	shop := dispatchertest.NewReceiver(t, dispatchertest.After(answer, http.StatusInternalServerError))
	acme := f.EndpointAt(shop.URL, 7)
	id := f.Event(t, acme.MerchantID)
	d := f.dispatcher(t)
	stop := start(t, d)
	shop.Await(t, 1)
	f.takeOver(t, id, acme.MerchantID)
	close(answer)
	dispatchertest.Eventually(t, "the attempt ends", func() bool { return testutil.ToFloat64(d.metrics.leasesLost) == 1 })
	_ = stop()
	f.AwaitBacklog(t, 7, outbox.Backlog{Due: 1})
	if letters := f.DeadLetters(t); len(letters) != 0 {
		t.Errorf("dead letters: %+v", letters)
	}
}

// takeOver leases an event with an attempt in progress to another dispatcher, as if its lease had ended.
func (f testFixture) takeOver(t *testing.T, id, merchantID string) {
	t.Helper()
	bucket := session.MerchantBucket(merchantID)
	f.MakeDue(t, bucket, id)
	leased, err := f.Outbox.Lease(t.Context(), bucket, outbox.LeaseRequest{HolderIdentity: "another", For: time.Hour, Limit: 1})
	if err != nil || len(leased.Leases) != 1 {
		t.Fatalf("took over %d events: %v", len(leased.Leases), err)
	}
}

// Receivers refuse a timestamp that is minutes off, so it is of Redis, not of this machine's clock.
func TestAttempt_ClockAhead(t *testing.T) {
	f := newFixture(t)
	shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	acme := f.EndpointAt(shop.URL, 7)
	d := f.dispatcher(t)
	d.now = func() time.Time { return time.Now().Add(time.Hour) }
	start(t, d)
	f.Event(t, acme.MerchantID)
	if seen := shop.Await(t, 1); !seen[0].Verified {
		t.Errorf("the receiver refused %+v", seen[0])
	}
}

// An endpoint that is gone gets nothing until it is resumed.
func TestAttempt_GoneDisables(t *testing.T) {
	f := newFixture(t)
	answer := http.StatusGone
	shop := dispatchertest.NewReceiver(t, func(before int, _ *http.Request) int {
		if before == 0 {
			return answer
		}
		return http.StatusOK
	})
	acme := f.EndpointAt(shop.URL, 7)
	first := f.Event(t, acme.MerchantID)
	d := f.dispatcher(t)
	start(t, d)
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 1})
	second := f.Event(t, acme.MerchantID)
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 2})
	if n := len(shop.IDs()); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
	reasons := map[string]string{}
	for _, letter := range f.DeadLetters(t) {
		reasons[letter.Event.ID] = letter.Reason
	}
	if reasons[first] != "gone" || reasons[second] != "endpoint_disabled" {
		t.Errorf("the dead letters' reasons are %v", reasons)
	}
	f.reports.AwaitReasons(t, "EndpointGone")
	if got := testutil.ToFloat64(d.metrics.endpointsDisabled.WithLabelValues("gone")); got != 1 {
		t.Errorf("counted %v disabled endpoints", got)
	}

	f.Moved(acme, "resumed")
	f.reports.AwaitReasons(t, "EndpointGone", "EndpointChanged")
	third := f.Event(t, acme.MerchantID)
	if seen := shop.Await(t, 2); seen[1].ID != third {
		t.Errorf("saw %s, want %s", seen[1].ID, third)
	}
	f.reports.AwaitReasons(t, "EndpointGone", "EndpointChanged", "Healthy")
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 2})
	if sent, err := f.Outbox.Resend(t.Context(), outbox.ResendRequest{IDs: []string{first, second}}); err != nil || sent.Sent != 2 {
		t.Fatalf("sent %+v again: %v", sent, err)
	}
	shop.Await(t, 4)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
}

func TestAttempt_FailingLimitDisables(t *testing.T) {
	f := newFixture(t)
	shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusInternalServerError))
	acme := f.EndpointAt(shop.URL, 7)
	f.Event(t, acme.MerchantID)
	start(t, f.dispatcher(t, func(o *Options) {
		o.FailingLimit = 5 * time.Millisecond
		o.Schedule = Schedule{0, 10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond, time.Hour}
	}))
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 1})
	dispatchertest.Eventually(t, "it is reported", func() bool { return slices.Contains(f.reports.Reasons(), "EndpointDisabled") })
	if n := len(shop.IDs()); n != 2 { // the second was more than the limit after the first
		t.Errorf("%d attempts, want 2", n)
	}
}
