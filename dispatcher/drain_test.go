package dispatcher

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/store"
)

func TestADrainFinishesWhatIsUnderWayAndHandsBackTheRest(t *testing.T) {
	s := newScene(t)
	answer := make(chan struct{})
	shop := newReceiver(t, after(answer, http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	for range 3 {
		s.event(t, acme.MerchantID)
	}
	d := s.dispatcher(t, func(o *Options) { o.Concurrency = 1 })
	stop := start(t, d)
	begun := shop.await(t, 1)[0].id
	eventually(t, "the others wait here", func() bool { return s.leased(t, 3) })

	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	// Another dispatcher gets the others at once, long before the attempt and the leases end.
	var handedBack []store.Lease
	eventually(t, "the others are handed back", func() bool {
		leased, err := s.store.LeaseEvents(t.Context(), 7, store.LeaseRequest{For: time.Hour, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		handedBack = append(handedBack, leased.Leases...)
		return len(handedBack) == 2
	})
	for _, lease := range handedBack {
		if lease.Event.ID == begun || lease.Attempts != 0 {
			t.Errorf("handed back %s after %d attempts, while %s was under way", lease.Event.ID, lease.Attempts, begun)
		}
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped with an attempt under way: %v", err)
	default:
	}
	close(answer)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	s.awaitBacklog(t, 7, store.Backlog{Due: 2})
	if n := len(shop.all()); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
}

// leased reports whether this many events are leased to somebody.
func (s scene) leased(t *testing.T, want int) bool {
	t.Helper()
	var leased int
	for id := range s.queued(t, 7) {
		if s.leasedTo(t, 7, id) {
			leased++
		}
	}
	return leased == want
}

func TestAttemptsThatTakeTooLongAreCutOffAndHandedBack(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, hanging)
	acme := s.endpointAt(shop.URL, 7)
	id := s.event(t, acme.MerchantID)
	stop := start(t, s.dispatcher(t, func(o *Options) { o.ShutdownTimeout = 10 * time.Millisecond }))
	shop.await(t, 1)
	if err := stop(); !errors.Is(err, errCutOff) {
		t.Errorf("stopped with %v, want errCutOff", err)
	}
	leased, err := s.store.LeaseEvents(t.Context(), 7, store.LeaseRequest{For: time.Hour, Limit: 10})
	if err != nil || len(leased.Leases) != 1 || leased.Leases[0].Event.ID != id || leased.Leases[0].Attempts != 0 {
		t.Errorf("due are %+v: %v", leased.Leases, err)
	}
}

func TestAnIdleDispatcherStopsAtOnce(t *testing.T) {
	s := newScene(t)
	stop := start(t, s.dispatcher(t))
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestEventsAreDeliveredOnceRedisIsBack(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	start(t, s.dispatcher(t))
	s.server.Stop()
	eventually(t, "the outage is noticed", func() bool { return len(s.log.String()) > 0 })
	s.server.Start()
	eventually(t, "Redis answers again", func() bool { return s.store.Check(t.Context()) == nil })
	id := s.event(t, acme.MerchantID)
	if seen := shop.await(t, 1); seen[0].id != id {
		t.Errorf("saw %s, want %s", seen[0].id, id)
	}
}
