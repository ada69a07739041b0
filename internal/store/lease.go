package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
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

// Lease is the right to deliver one event for a while. What stands for it in the queue proves it: what is asked for by a lease that
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
	// queued is what stands in the queue for it while the lease lasts.
	queued string
}

func (l Lease) keyspace() keyspace { return keyspaceOf(l.bucket) }

// Leased are the events of one bucket that were due.
type Leased struct {
	// Now is the time of Redis, the clock of every event.
	Now time.Time
	// Leases are in the order in which their events came due, one merchant after the other.
	Leases []Lease
	// Unreadable are the ids of events that cannot be read. They are dead letters now.
	Unreadable []string
	// Expired is how many events were not delivered within their 30 days. They are lost.
	Expired int
	// More reports that some merchant has more than its share.
	More bool
}

// ReasonUnreadable is why an event that cannot be read is a dead letter.
const ReasonUnreadable = "unreadable"

// LeaseEvents takes events of the bucket that are due. Each merchant that has any gets an equal share of the limit in turn, its
// longest due ones first, so that nobody's backlog delays another's. An event that cannot be read does not stand in the way of the
// others. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) LeaseEvents(ctx context.Context, bucket session.Bucket, request LeaseRequest) (Leased, error) {
	space := keyspaceOf(bucket)
	token := request.Holder + ":" + rand.Text()
	answer, err := s.run(ctx, leaseScript, []string{space.queue(), space.due()},
		request.For.Milliseconds(), request.Limit, token)
	if err != nil {
		return Leased{}, fmt.Errorf("lease events: %w", err)
	}
	if answer.text() != wordOK {
		return Leased{}, fmt.Errorf("lease events: %w", ErrCorrupt)
	}
	leased := Leased{Now: answer.millis(), More: answer.integer() == 1}
	rows := answer.list()
	if answer.broken {
		return Leased{}, fmt.Errorf("lease events: %w", ErrCorrupt)
	}
	var lost, unreadable []Lease
	for len(rows.rest) > 0 {
		lease, there, err := leaseOf(rows.list(), bucket)
		switch {
		case err == nil:
			leased.Leases = append(leased.Leases, lease)
		case there:
			unreadable = append(unreadable, lease)
		default:
			lost = append(lost, lease)
		}
	}
	for _, lease := range lost {
		expired, err := s.forgetLost(ctx, lease)
		if err != nil {
			return leased, err
		}
		leased.Expired += expired
	}
	for _, lease := range unreadable {
		leased.Unreadable = append(leased.Unreadable, lease.Event.ID)
		if err := s.BuryEvent(ctx, lease, ReasonUnreadable); err != nil && !errors.Is(err, ErrLeaseLost) {
			return leased, err
		}
	}
	return leased, nil
}

// forgetLost takes an event out of the queue if it is really none, and returns how many it took.
func (s *Store) forgetLost(ctx context.Context, lease Lease) (int, error) {
	space := lease.keyspace()
	keys := []string{space.queue(), space.due(), space.event(lease.Event.ID)}
	answer, err := s.run(ctx, leaseLostScript, keys, lease.queued)
	if err := leaseError("forget a lost event", answer, err); err != nil {
		return 0, err
	}
	return int(answer.integer()), nil
}

// leaseOf decodes one row of lease.lua. With an error the lease still names its event, and there says that this was read at all.
func leaseOf(row *reply, bucket session.Bucket) (lease Lease, there bool, err error) {
	queued, merchantID, id, fields := row.text(), row.text(), row.text(), row.pairs()
	lease = Lease{Event: outbox.Event{ID: id}, bucket: bucket, queued: queued}
	there = len(fields) > 0
	attempts, err := strconv.Atoi(cmp.Or(fields["attempts"], "0"))
	if err != nil {
		return lease, there, ErrCorrupt
	}
	state := row.list()
	if row.broken {
		return lease, there, ErrCorrupt
	}
	event, err := eventOf(id, fields)
	if errors.Is(err, errUnsupported) {
		lease.Event, lease.Unsupported = event, true
		return lease, there, nil
	}
	endpoint, stateErr := endpointOf(merchantID, state)
	if err != nil || stateErr != nil || event.MerchantID != merchantID || event.Bucket() != bucket {
		return lease, there, ErrCorrupt
	}
	lease.Event, lease.Attempts, lease.Endpoint = event, attempts, endpoint
	return lease, there, nil
}
