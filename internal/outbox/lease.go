package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// LeaseRequest asks for events that are due.
type LeaseRequest struct {
	// HolderIdentity names the dispatcher that asks, as its heartbeats do. It may be empty.
	HolderIdentity string
	// For is how long nobody else gets these events. Those that are neither ended nor deferred by then come due
	// again, so the events of a dispatcher that crashed are not lost.
	For time.Duration
	// Limit is the largest number of events.
	Limit int
	// Each is the largest number of events of one account; 0: the limit.
	Each int
	// Room overrides Each for single accounts. 0: the account is paused, because this dispatcher cannot try its events now. Nothing of it is
	// touched, and it keeps its turn for other dispatchers.
	Room map[string]int
}

// Lease is the right to deliver one event for a while. Its member in the queue proves it: a request with a lease that is held by somebody else
// by now changes nothing.
type Lease struct {
	Event feed.Event
	// Attempts is how often delivery has failed so far.
	Attempts int
	// Endpoint is how the merchant's endpoint stood; zero for an event of test mode.
	Endpoint EndpointState
	// Unsupported: a newer program wrote the event, and only some of it could be read. It can be deferred, nothing else.
	Unsupported bool

	bucket session.Bucket
	// queued is its member of the queue while the lease lasts.
	queued string
}

func (l Lease) space() redis.Keyspace { return redis.BucketKeyspace(l.bucket) }

// keys writes those of the queue and of the event.
func (l Lease) keys(call *redis.Call) {
	space := l.space()
	call.Key("queue_key", space, QueueKey)
	call.Key("due_key", space, DueKey)
	call.Key("event_key", space, EventKey, l.Event.ID)
}

// deadLetterKeys writes those of the dead letters of the bucket and of the account, which is in the queue also if the event cannot be read.
func (l Lease) deadLetterKeys(call *redis.Call) {
	account, _, _ := strings.Cut(l.queued, ":")
	call.Key("dead_key", l.space(), deadLettersKey)
	call.Key("account_dead_key", l.space(), accountDeadLettersKey, account)
}

// Leased are the events of one bucket that were due.
type Leased struct {
	// Now is the time of Redis, the clock of every event.
	Now time.Time
	// Leases are in the order in which their events came due, one account after the other.
	Leases []Lease
	// Undecodable are the ids of events that cannot be decoded. They are dead letters now.
	Undecodable []string
	// Expired is how many events were not delivered within their 30 days. They are lost.
	Expired int
	// More reports that some account has more than its share.
	More bool
}

// ReasonDecodeError is why an event that cannot be decoded is a dead letter.
const ReasonDecodeError = "decode_error"

// Lease takes events of the bucket that are due. Each account that has any gets an equal share of the limit in turn, if there is room for it, its
// longest due ones first, so that no backlog delays another account. An event that cannot be read does not block the others. The error is
// redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) Lease(ctx context.Context, bucket session.Bucket, request LeaseRequest) (Leased, error) {
	space := redis.BucketKeyspace(bucket)
	// Only leases of one event by one holder that end in the same millisecond differ by the random text alone.
	token := request.HolderIdentity + ":" + rand.Text()[:8]
	call := redis.NewCall(leaseScript)
	call.Key("queue_key", space, QueueKey)
	call.Key("due_key", space, DueKey)
	call.Millis("lease_ms", request.For)
	call.Int("limit", int64(request.Limit))
	call.Text("token", token)
	call.Text("endpoint_prefix", space.Key(EndpointKey))
	call.Text("event_prefix", space.Key(EventKey))
	call.Int("each", int64(cmp.Or(request.Each, request.Limit)))
	for account, room := range request.Room {
		call.More(account)
		call.MoreInt(int64(room))
	}
	reply, err := o.redis.Run(ctx, &call)
	if err != nil {
		return Leased{}, fmt.Errorf("lease events: %w", err)
	}
	reply.RequireOK()
	leased := Leased{Now: reply.Millis(), More: reply.Int() == 1}
	endpoints, rows := reply.List(), reply.List()
	if err := reply.Err(); err != nil {
		return Leased{}, fmt.Errorf("lease events: %w", err)
	}
	states := map[string]EndpointState{}
	for endpoints.More() {
		endpoint := endpoints.List()
		merchantID, fields := endpoint.Text(), endpoint.List()
		states[merchantID], _ = parseEndpoint(merchantID, &fields) // one that cannot be read says so, and its events wait
	}
	var lost, undecodable []Lease
	for rows.More() {
		row := rows.List()
		lease, there, err := parseLease(&row, bucket, states)
		switch {
		case err == nil:
			leased.Leases = append(leased.Leases, lease)
		case there:
			undecodable = append(undecodable, lease)
		default:
			lost = append(lost, lease)
		}
	}
	for _, lease := range lost {
		expired, err := o.forget(ctx, lease)
		if err != nil {
			return leased, err
		}
		leased.Expired += expired
	}
	for _, lease := range undecodable {
		leased.Undecodable = append(leased.Undecodable, lease.Event.ID)
		if err := o.DeadLetter(ctx, lease, Details{Reason: ReasonDecodeError}); err != nil && !errors.Is(err, ErrLeaseLost) {
			return leased, err
		}
	}
	return leased, nil
}

// forget takes an event out of the queue if its record is gone, and returns how many it took.
func (o *Outbox) forget(ctx context.Context, lease Lease) (int, error) {
	call := redis.NewCall(forgetScript)
	lease.keys(&call)
	call.Text("leased", lease.queued)
	reply, err := o.redis.Run(ctx, &call)
	if err := LeaseError("forget a lost event", &reply, err); err != nil {
		return 0, err
	}
	return int(reply.Int()), reply.Err()
}

// parseLease decodes one row of lease_events.lua. With an error the lease still names its event; there reports whether it has a record.
func parseLease(row *redis.Reply, bucket session.Bucket, states map[string]EndpointState) (lease Lease, there bool, err error) {
	queued, account, id, fields := row.Text(), row.Text(), row.Text(), row.Map()
	lease = Lease{Event: feed.Event{ID: id}, bucket: bucket, queued: queued}
	there = len(fields) > 0
	attempts, err := strconv.Atoi(cmp.Or(fields[attemptsField], "0"))
	if err != nil {
		return lease, there, redis.ErrCorrupt
	}
	if row.Err() != nil {
		return lease, there, redis.ErrCorrupt
	}
	event, err := ParseEvent(id, fields)
	if errors.Is(err, feed.ErrUnsupported) {
		lease.Event, lease.Unsupported = event, true
		return lease, there, nil
	}
	if err != nil || event.Account() != account || event.Bucket() != bucket {
		return lease, there, redis.ErrCorrupt
	}
	lease.Event, lease.Attempts, lease.Endpoint = event, attempts, states[account]
	return lease, there, nil
}
