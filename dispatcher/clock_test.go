package dispatcher

import (
	"net/http"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/store"
)

// jumpyTime is an hour late, right, or an hour early, another way each time it is asked for. It is drawn by lot: taken in turn, one that
// is too late for every attempt could come round in step with the looks.
func jumpyTime() time.Time {
	hours := int(3*drawLot()) - 1
	return time.Now().Add(time.Duration(hours) * time.Hour).Round(0) // by the wall alone
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
	d.now = jumpyTime
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
