package attempt

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/holder"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// Each attempt sends the same id and the same bytes, so that a receiver recognizes the event.
func TestAttempt_RepeatsTheSameBytes(t *testing.T) {
	f := testFixture{dispatchertest.New(t)}
	answers := []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusOK}
	shop := dispatchertest.NewReceiver(t, func(before int, _ *http.Request) int { return answers[min(before, 2)] })
	acme := f.EndpointAt(shop.URL, 7)
	id := f.Event(t, acme.MerchantID)
	w := f.worker(t)
	stop := f.start(t, w)
	seen := shop.Await(t, 3)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	stop()
	shop.WantAttempts(t, 3)
	if len(seen) != 1 || seen[0].ID != id || seen[0].Attempts != 3 || !seen[0].Verified {
		t.Errorf("the attempts were %+v, want three of %s with the same bytes", seen, id)
	}
	for result, want := range map[string]float64{"status_5xx": 2, "delivered": 1} {
		if got := testutil.ToFloat64(w.Metrics.attempts.WithLabelValues(result)); got != want {
			t.Errorf("counted %v attempts as %s, want %v", got, result, want)
		}
	}
	if got := testutil.ToFloat64(w.Metrics.events.WithLabelValues("session.cancelled", outcomeDelivered)); got != 1 {
		t.Errorf("counted %v delivered events", got)
	}
}

// The former URL answers 410 when there is another one already. The event goes there, and the new endpoint is not disabled.
func TestAttempt_FormerURLGone(t *testing.T) {
	f := testFixture{dispatchertest.New(t)}
	asked, changed := make(chan struct{}), make(chan struct{})
	former := dispatchertest.NewReceiver(t, func(int, *http.Request) int {
		close(asked)
		<-changed
		return http.StatusGone
	})
	present := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	acme := f.EndpointAt(former.URL, 7)
	f.Event(t, acme.MerchantID)
	stop := f.start(t, f.worker(t))
	<-asked
	moved := f.Moved(acme, "moved")
	moved.URL = present.URL
	f.Index.Put(moved)
	close(changed)
	present.Await(t, 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	f.Event(t, acme.MerchantID)
	present.Await(t, 2)
	stop()
	if letters := f.DeadLetters(t); len(letters) != 0 {
		t.Errorf("dead letters: %+v", letters)
	}
}

// Another dispatcher has heard of another URL while the former one, which this dispatcher still knows, answers 410.
func TestAttempt_FormerURLGoneWithALateWatch(t *testing.T) {
	f := testFixture{dispatchertest.New(t)}
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
	w := f.worker(t)
	stop := f.start(t, w)
	f.Event(t, acme.MerchantID)
	former.Await(t, 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	id := f.Event(t, acme.MerchantID)
	dispatchertest.Eventually(t, "the event is left to others", func() bool {
		return testutil.ToFloat64(w.Metrics.deferred.WithLabelValues(deferredChanged)) >= 2 // of the attempt, and of the next lease
	})
	if state := f.State(t, acme); state.Disabled() || state.Target != moved.Target {
		t.Errorf("the endpoint is %+v", state)
	}
	f.Index.Put(moved) // the watch has caught up
	present.AwaitEvent(t, 0, id)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	stop()
	former.WantAttempts(t, 2)
	if letters := f.DeadLetters(t); len(letters) != 0 {
		t.Errorf("dead letters: %+v", letters)
	}
}

// An event that fails for the whole schedule is a dead letter.
func TestAttempt_DeadLetterAfterTheSchedule(t *testing.T) {
	f := testFixture{dispatchertest.New(t)}
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusInternalServerError))
	id := f.Event(t, acme.MerchantID)
	stop := f.start(t, f.worker(t))
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 1})
	stop()
	shop.WantAttempts(t, 4) // as many as the schedule has entries
	letters := f.DeadLetters(t)
	if len(letters) != 1 || letters[0].Event.ID != id || letters[0].Attempts != 4 || letters[0].Reason != "status_5xx" {
		t.Errorf("dead letters: %+v", letters)
	}
}

// The result of an attempt whose lease was lost in the meantime changes nothing.
func TestAttempt_LostLeaseChangesNothing(t *testing.T) {
	f := testFixture{dispatchertest.New(t)}
	answer := make(chan struct{})
	shop, acme := f.Shop(t, dispatchertest.After(answer, http.StatusInternalServerError))
	id := f.Event(t, acme.MerchantID)
	w := f.worker(t)
	stop := f.start(t, w)
	shop.Await(t, 1)
	f.takeOver(t, id, acme.MerchantID)
	close(answer)
	dispatchertest.Eventually(t, "the attempt ends", func() bool { return testutil.ToFloat64(w.Metrics.leasesLost) == 1 })
	stop()
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
	f := testFixture{dispatchertest.New(t)}
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	w := f.worker(t)
	w.Now = func() time.Time { return time.Now().Add(time.Hour) }
	f.start(t, w)
	f.Event(t, acme.MerchantID)
	if seen := shop.Await(t, 1); !seen[0].Verified {
		t.Errorf("the receiver refused %+v", seen[0])
	}
}

// A dispatcher that was frozen sends none of the events that it had leased before it has made a heartbeat. If others have removed its leases
// in the meantime, it sends none of these events at all.
func TestAttempt_AfterFreeze(t *testing.T) {
	for name, removed := range map[string]bool{"still there": false, "removed": true} {
		t.Run(name, func(t *testing.T) {
			f := testFixture{dispatchertest.New(t)}
			shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
			f.Event(t, acme.MerchantID)
			f.Event(t, acme.MerchantID)
			var frozen atomic.Int64
			w := f.worker(t)
			w.Now = func() time.Time { return time.Now().Add(time.Duration(frozen.Load())) }
			from := holder.New(f.Outbox, "test", w.Log, w.Now).In(7)
			name, err := from.Confirm(t.Context())
			dispatchertest.Must(t, err)
			leased, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{HolderIdentity: name, For: time.Hour, Limit: 2})
			dispatchertest.Must(t, err)
			attempt := func(lease outbox.Lease, startBy time.Duration) Result {
				now := w.Now()
				return w.Attempt(t.Context(), Job{Lease: lease, Holder: from, HolderName: name, Endpoint: acme, Asked: now, RedisNow: now, StartBy: now.Add(startBy), LeaseEnd: now.Add(time.Hour)})
			}
			frozen.Store(int64(time.Hour))
			if removed {
				gone, err := f.Outbox.RemoveHolder(t.Context(), f.Outbox.HolderBuckets()[0], name, "1")
				if err != nil || !gone {
					t.Fatalf("removed: %t, %v", gone, err)
				}
			}
			if result := attempt(leased.Leases[0], 0); result != Inconclusive || len(shop.IDs()) != 0 {
				t.Errorf("without a heartbeat: result %v, %d attempts", result, len(shop.IDs()))
			}
			_, err = from.Confirm(t.Context())
			dispatchertest.Must(t, err)
			want, attempts := Succeeded, 1
			if removed {
				want, attempts = Inconclusive, 0
			}
			if result := attempt(leased.Leases[1], dispatchertest.Patience); result != want || len(shop.IDs()) != attempts {
				t.Errorf("after a heartbeat: result %v, %d attempts, want %v, %d", result, len(shop.IDs()), want, attempts)
			}
		})
	}
}
