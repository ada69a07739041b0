package webhook

import (
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/store"
	"github.com/merchant-operator/merchant-operator/apiserver/webhook/endpoints"
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
	deferredBusy       = "busy"
	deferredBroken     = "breaker"
	deferredStopping   = "stopping"
	deferredUnsigned   = "no_secret"
	deferredUnknown    = "unknown_merchant"
	deferredUnreadable = "unreadable_merchant"
)

// reasonDisabled is why an event for a disabled endpoint is a dead letter.
const reasonDisabled = "endpoint_disabled"

const (
	// busyPause is after which time an endpoint that was busy is asked again.
	busyPause = time.Second
	// knowledgePause is after which time the index is asked again. A merchant that was just applied is a watch
	// away, and its secret a pass of the operator; only one that is gone is asked for until the watches prove it, which
	// hear of the Kubernetes API about once a minute.
	knowledgePause = 2 * time.Second
	// repairPause is after which time a merchant is looked at again that could not be decoded: somebody has to put it right.
	repairPause = 30 * time.Second
	// indexLag is how much later than the API server's clock the index may be, beyond its age.
	indexLag = 5 * time.Second
)

// decide says what to do with a leased event. The index knew all that was published until knownUntil, by the clock of
// Redis. That it knows no endpoint proves nothing about an event that is newer: the merchant may be so as well, and an
// event that is dropped is lost.
func decide(lease store.Lease, endpoint endpoints.Endpoint, known bool, knownUntil time.Time) decision {
	switch {
	case endpoint.Unreadable:
		return decision{wait, deferredUnreadable, repairPause}
	case !known && !knownUntil.After(lease.Event.OccurredAt.Add(indexLag)):
		return decision{wait, deferredUnknown, knowledgePause}
	case !known, !endpoint.Wants(lease.Event.Kind):
		return decision{move: drop}
	case lease.Endpoint.Disabled() && lease.Endpoint.Target == endpoint.Target:
		return decision{move: bury}
	case len(endpoint.Secrets) == 0:
		return decision{wait, deferredUnsigned, knowledgePause}
	case lease.Endpoint.Disabled():
		return decision{move: resume}
	}
	return decision{move: send}
}
