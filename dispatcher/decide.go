package dispatcher

import (
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// move is what is to be done with a leased event.
type move int

const (
	send   move = iota
	resume      // send, for the endpoint is another one than that which was disabled
	drop        // nobody wants it
	bury        // nobody can be told
	wait        // until more is known
)

// decision is a move; why and after belong to wait.
type decision struct {
	move  move
	why   string
	after time.Duration
}

// Why an event is put off. They label a metric.
const (
	deferredBusy        = "busy"
	deferredBroken      = "breaker"
	deferredStopping    = "stopping"
	deferredUnsigned    = "no_secret"
	deferredUnknown     = "unknown_merchant"
	deferredUndecodable = "unreadable_merchant"
	// deferredUnsupported: a newer program wrote the event, and a newer dispatcher will deliver it.
	deferredUnsupported = "unsupported_event"
)

// reasonDisabled is why an event for a disabled endpoint is a dead letter.
const reasonDisabled = "endpoint_disabled"

const (
	// busyPause is after which time an endpoint that was busy is asked again.
	busyPause = time.Second
	// shortestPause and longestPause bound the pauses of an event that cannot be placed yet.
	shortestPause, longestPause = 2 * time.Second, 5 * time.Minute
)

// pauseAt is how long an event of that age pauses which cannot be placed yet. What is missing is a watch away at first;
// the longer it has been missing, the more likely it is that a person has to mend it.
func pauseAt(age time.Duration) time.Duration {
	return min(max(age/2, shortestPause), longestPause)
}

// decide says what to do with a leased event; now is the time of Redis. An event that is dropped is lost, so that
// takes what the operator has said: that nothing is published of a merchant may be an accident.
func decide(lease store.Lease, endpoint endpoints.Endpoint, now time.Time) decision {
	pause := pauseAt(now.Sub(lease.Event.OccurredAt))
	switch {
	case lease.Unsupported:
		return decision{wait, deferredUnsupported, pause}
	case endpoint.State == endpoints.Undecodable:
		return decision{wait, deferredUndecodable, pause}
	case endpoint.State == endpoints.Unknown:
		return decision{wait, deferredUnknown, pause}
	case !endpoint.Wants(lease.Event.Kind): // nor does a merchant that was withdrawn
		return decision{move: drop}
	case lease.Endpoint.Disabled() && lease.Endpoint.Target == endpoint.Target:
		return decision{move: bury}
	case len(endpoint.Secrets) == 0:
		return decision{wait, deferredUnsigned, pause}
	case lease.Endpoint.Disabled():
		return decision{move: resume}
	}
	return decision{move: send}
}
