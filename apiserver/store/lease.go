package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/outbox"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// LeaseRequest asks for events that are due.
type LeaseRequest struct {
	// Holder names who asks, for people who look into Redis. It may be empty.
	Holder string
	// For is how long nobody else gets these events. Those that are neither ended nor put off by then come due
	// again by themselves, which is how the events of a dispatcher that crashed are not lost.
	For time.Duration
	// Limit is the largest number of events.
	Limit int
}

// Lease is the right to deliver one event for a while. Its token proves it: what is asked for by a lease that
// was given to somebody else since changes nothing.
type Lease struct {
	Event outbox.Event
	// Attempts is how often delivery has failed so far.
	Attempts int
	// Endpoint is how the merchant's endpoint stood.
	Endpoint EndpointState
	// Unsupported: a newer program wrote the event, and only some of it could be read. It can be put off, nothing else.
	Unsupported bool

	bucket session.Bucket
	token  string
}

func (l Lease) keyspace() keyspace { return keyspaceOf(l.bucket) }

// Leased are the events of one bucket that were due.
type Leased struct {
	// Now is the time of Redis, the clock of every event.
	Now time.Time
	// Leases are in the order in which their events came due.
	Leases []Lease
	// Unreadable are the ids of events that cannot be read. They are dead letters now.
	Unreadable []string
	// Expired is how many events were not delivered within their 30 days. They are lost.
	Expired int
	// More reports that the limit was reached.
	More bool
}

// ReasonUnreadable is why an event that cannot be read is a dead letter.
const ReasonUnreadable = "unreadable"

// LeaseEvents takes events of the bucket that are due, the longest due first. An event that cannot be read does not
// stand in the way of the others. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) LeaseEvents(ctx context.Context, bucket session.Bucket, request LeaseRequest) (Leased, error) {
	space := keyspaceOf(bucket)
	token := request.Holder + ":" + rand.Text()
	answer, err := s.run(ctx, leaseScript, []string{space.due(), space.event(""), space.endpoint("")},
		request.For.Milliseconds(), request.Limit, token)
	if err != nil {
		return Leased{}, fmt.Errorf("lease events: %w", err)
	}
	if answer.text() != wordOK {
		return Leased{}, fmt.Errorf("lease events: %w", ErrCorrupt)
	}
	leased := Leased{Now: answer.millis()}
	rows := answer.list()
	leased.Expired = int(answer.integer())
	if answer.broken {
		return Leased{}, fmt.Errorf("lease events: %w", ErrCorrupt)
	}
	leased.More = len(rows.rest)+leased.Expired >= request.Limit
	for len(rows.rest) > 0 {
		lease, err := leaseOf(rows.list(), bucket, token)
		if err == nil {
			leased.Leases = append(leased.Leases, lease)
			continue
		}
		leased.Unreadable = append(leased.Unreadable, lease.Event.ID)
		if err := s.BuryEvent(ctx, lease, ReasonUnreadable); err != nil && !errors.Is(err, ErrLeaseLost) {
			return leased, err
		}
	}
	return leased, nil
}

// leaseOf decodes one row of lease.lua. With an error the lease still names its event.
func leaseOf(row *reply, bucket session.Bucket, token string) (Lease, error) {
	id, fields := row.text(), row.pairs()
	lease := Lease{
		Event:    outbox.Event{ID: id},
		Attempts: int(row.integer()),
		bucket:   bucket,
		token:    token,
	}
	state := row.list()
	if row.broken {
		return lease, ErrCorrupt
	}
	event, err := eventOf(id, fields)
	if errors.Is(err, errUnsupported) {
		lease.Event, lease.Unsupported = event, true
		return lease, nil
	}
	endpoint, stateErr := endpointOf(fields["m"], state)
	if err != nil || stateErr != nil || event.Bucket() != bucket {
		return lease, ErrCorrupt
	}
	lease.Event, lease.Endpoint = event, endpoint
	return lease, nil
}
