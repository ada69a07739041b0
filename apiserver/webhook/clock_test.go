package webhook

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

// jumpyClock is an hour late, right, or an hour early, another way each time it is looked at.
type jumpyClock struct {
	mu    sync.Mutex
	looks int
}

func (c *jumpyClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	return time.Now().Add(time.Duration(c.looks*7%3-1) * time.Hour).Round(0) // by the wall alone
}

// What is due, and whose lease has ended, is said by Redis. So a dispatcher whose clock is set back and forth loses
// nothing, and neither delivers before the time nor buries what has attempts left.
func TestADispatcherWhoseClockJumpsLosesNothing(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, func(before int, _ *http.Request) int {
		if before%4 == 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	acme := s.endpointAt(shop.URL, 7)
	const many = 40
	wanted := map[string]bool{}
	for range many {
		wanted[s.event(t, acme.MerchantID)] = true
	}
	d := s.dispatcher(t, func(o *Options) {
		o.Schedule = append(o.Schedule, o.Schedule[1:]...)
	})
	d.now = new(jumpyClock).now
	stop := start(t, d)
	eventually(t, "every event has arrived", func() bool {
		for _, receipt := range shop.all() {
			delete(wanted, receipt.id)
		}
		return len(wanted) == 0
	})
	s.awaitBacklog(t, 7, store.Backlog{})
	if err := stop(); err != nil {
		t.Error(err)
	}
}
