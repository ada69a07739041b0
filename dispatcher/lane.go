package dispatcher

import (
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// parcel is a leased event and where it goes.
type parcel struct {
	lease    store.Lease
	endpoint endpoints.Endpoint
	// occurred is when it happened, by this program's clock.
	occurred time.Time
	// startBy is when an attempt can last start without outliving the lease, which ends at leaseEnd.
	startBy, leaseEnd time.Time
}

// lane is what this dispatcher holds for one merchant: events that wait for their turn, and attempts under way.
type lane struct {
	queue   []parcel
	running int
	breaker breaker
	// ready: the lane is in line for a free place.
	ready bool
}

// mayStart reports whether the lane has something to do and is not at its limit.
func (l *lane) mayStart(concurrency int) bool {
	if l.breaker.suspicious() {
		concurrency = 1
	}
	return len(l.queue) > 0 && l.running < concurrency
}

func (l *lane) pop() parcel {
	next := l.queue[0]
	l.queue[0] = parcel{} // let go of it
	l.queue = l.queue[1:]
	return next
}

// clear empties the queue and returns what was in it.
func (l *lane) clear() []parcel {
	queue := l.queue
	l.queue = nil
	return queue
}

// idle reports whether there is nothing to remember of the lane.
func (l *lane) idle() bool {
	return len(l.queue) == 0 && l.running == 0 && !l.breaker.suspicious()
}
