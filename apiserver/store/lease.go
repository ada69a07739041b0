package store

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/outbox"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// LeaseRequest asks for events that are due.
type LeaseRequest struct {
	// Holder names who asks, for people who look into Redis. It may be empty.
	Holder string
	// For is how long nobody else gets these events. Those that are neither ended nor deferred by then come
	// due again by themselves, which is how the events of a dispatcher that crashed are not lost.
	For time.Duration
	// Limit is the largest number of events.
	Limit int
}

// Lease is the right to deliver one event for a while. It is proven by its token: what a lease that was
// given to somebody else since asks for changes nothing.
type Lease struct {
	Event outbox.Event
	// Attempts is how often delivery has failed so far.
	Attempts int
	// Endpoint is how the merchant's endpoint stands.
	Endpoint EndpointState

	token string
}

// Leased are the events of one bucket that were due.
type Leased struct {
	// Now is the time of Redis, the clock of every event.
	Now time.Time
	// Leases are in the order in which their events came due.
	Leases []Lease
	// Corrupt are the ids of events that cannot be read. They are dead letters now.
	Corrupt []string
	// More reports that the limit was reached.
	More bool
}

// LeaseEvents takes events that are due, the longest due first. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) LeaseEvents(context.Context, session.Bucket, LeaseRequest) (Leased, error) {
	return Leased{}, ErrUnavailable
}
