package dispatcher

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestADrainFinishesAttemptsAndReleasesTheOtherEvents(t *testing.T) {
	f := newFixture(t)
	answer := make(chan struct{})
	shop := newReceiver(t, after(answer, http.StatusOK))
	acme := f.EndpointAt(shop.URL, 7)
	for range 3 {
		f.Event(t, acme.MerchantID)
	}
	d := f.dispatcher(t, func(o *Options) { o.Concurrency = 1 })
	stop := start(t, d)
	begun := shop.await(t, 1)[0].ID
	dispatchertest.Eventually(t, "the others wait here", func() bool { return f.leased(t, 3) })

	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	// Another dispatcher gets the others at once, long before the attempt and the leases end.
	var released []outbox.Lease
	dispatchertest.Eventually(t, "the others are released", func() bool {
		leased, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		released = append(released, leased.Leases...)
		return len(released) == 2
	})
	for _, lease := range released {
		if lease.Event.ID == begun || lease.Attempts != 0 {
			t.Errorf("released %s after %d attempts, while %s was in progress", lease.Event.ID, lease.Attempts, begun)
		}
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped with an attempt in progress: %v", err)
	default:
	}
	close(answer)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	f.AwaitBacklog(t, 7, outbox.Backlog{Due: 2})
	if n := len(shop.ids()); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
}

// leased reports whether this many events are leased to somebody.
func (f testFixture) leased(t *testing.T, want int) bool {
	t.Helper()
	var leased int
	for id := range f.Queued(t, 7) {
		if f.LeasedTo(t, 7, id) {
			leased++
		}
	}
	return leased == want
}

func TestAttemptsThatTakeTooLongAreAborted(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, hanging)
	acme := f.EndpointAt(shop.URL, 7)
	id := f.Event(t, acme.MerchantID)
	stop := start(t, f.dispatcher(t, func(o *Options) { o.ShutdownTimeout = 10 * time.Millisecond }))
	shop.await(t, 1)
	if err := stop(); !errors.Is(err, errAborted) {
		t.Errorf("stopped with %v, want errAborted", err)
	}
	leased, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 10})
	if err != nil || len(leased.Leases) != 1 || leased.Leases[0].Event.ID != id || leased.Leases[0].Attempts != 0 {
		t.Errorf("due are %+v: %v", leased.Leases, err)
	}
}

func TestAnIdleDispatcherStopsAtOnce(t *testing.T) {
	f := newFixture(t)
	stop := start(t, f.dispatcher(t))
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestEventsAreDeliveredOnceRedisIsBack(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := f.EndpointAt(shop.URL, 7)
	start(t, f.dispatcher(t))
	f.Server.Stop()
	dispatchertest.Eventually(t, "the outage is noticed", func() bool { return len(f.Log.String()) > 0 })
	f.Server.Start()
	storetest.UserURL(t, f.Server) // a restart has lost the user
	dispatchertest.Eventually(t, "Redis answers again", func() bool { return f.Client.Check(t.Context()) == nil })
	id := f.Event(t, acme.MerchantID)
	if seen := shop.await(t, 1); seen[0].ID != id {
		t.Errorf("saw %s, want %s", seen[0].ID, id)
	}
}

func TestARotationIsSentOnce(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := f.EndpointAt(shop.URL, 7)
	key := published.KeyRecord{
		KeyID: "abcdefgh2345", MerchantID: acme.MerchantID, Generation: 3,
		LastRotation: published.RotationEvent{Time: time.Now(), Cause: "API"},
	}
	id := fmt.Sprintf("evt_key_abcdefgh2345_3_%d", key.LastRotation.Time.UnixMilli())
	for range 2 { // two dispatchers see each rotation
		d := f.dispatcher(t)
		start(t, d)
		d.rotations.add(key, acme.MerchantName)
		dispatchertest.Eventually(t, "it is recorded", func() bool { return len(d.rotations.list()) == 0 })
	}
	if seen := shop.await(t, 1); seen[0].ID != id {
		t.Errorf("saw %s", seen[0].ID)
	}
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	if n := len(shop.ids()); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// jumpyTime is an hour late, right or an hour early, at random: in a fixed order, one that is too late for every attempt
// could coincide with the polls.
func jumpyTime() time.Time {
	hours := int(3*jitter.Fraction()) - 1
	return time.Now().Add(time.Duration(hours) * time.Hour).Round(0) // by the wall alone
}

// The clock of Redis decides what is due and which leases have ended. So a dispatcher whose clock jumps loses nothing,
// delivers nothing too early and makes no dead letter of an event that has attempts left.
func TestADispatcherWhoseClockJumpsLosesNothing(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, func(before int, _ *http.Request) int {
		if before%4 == 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	acme := f.EndpointAt(shop.URL, 7)
	const many = 40
	wanted := map[string]bool{}
	for range many {
		wanted[f.Event(t, acme.MerchantID)] = true
	}
	d := f.dispatcher(t, func(o *Options) {
		o.Schedule = append(o.Schedule, o.Schedule[1:]...)
	})
	d.now = jumpyTime
	stop := start(t, d)
	dispatchertest.Eventually(t, "every event has arrived", func() bool {
		for _, id := range shop.ids() {
			delete(wanted, id)
		}
		return len(wanted) == 0
	})
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestDispatchersShareTheWork(t *testing.T) {
	f := newFixture(t)
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
	acme := f.EndpointAt(shop.URL, 7)
	var want []string
	for range 40 {
		want = append(want, f.Event(t, acme.MerchantID))
	}
	single := func(o *Options) { o.Concurrency = 1 }
	start(t, f.dispatcher(t, single))
	start(t, f.dispatcher(t, single))
	dispatchertest.Eventually(t, "both have an attempt in progress", func() bool {
		want = append(want, f.Event(t, acme.MerchantID)) // one of them may have taken all there was
		return len(arrived) >= 2
	})
	close(both)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	got := shop.ids()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d attempts for %d events", len(got), len(want))
	}
}

// It never says that it is gone, as when it was killed in mid-delivery.
func TestWhatADispatcherHeldThatVanishedIsDelivered(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := f.EndpointAt(shop.URL, 7)
	want := []string{f.Event(t, acme.MerchantID), f.Event(t, acme.MerchantID)}
	vanished, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{HolderIdentity: "vanished", For: 500 * time.Millisecond, Limit: 10})
	if err != nil || len(vanished.Leases) != 2 {
		t.Fatalf("leased %d events: %v", len(vanished.Leases), err)
	}
	start(t, f.dispatcher(t))
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	got := shop.ids()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
}
