package attempt

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// Action is what to do with a leased event.
type Action int

// The actions.
const (
	Send       Action = iota
	Resume            // send; the endpoint's target is another one than that which was disabled
	Drop              // the merchant does not want it
	DeadLetter        // the endpoint is disabled
	Defer             // until more is known
)

// Decision is an action. Reason and Delay belong to Defer and to a Resume that fails; the Reason of a Drop is the outcome of the event.
type Decision struct {
	Action Action
	Reason string
	Delay  time.Duration
}

// decide says what to do with a leased event, and is pure; now is the time of Redis. Dropping an event loses it, so it requires that the operator
// says so: that the merchant was deleted, never had a webhook for it, or had none for published.WebhookGrace. A missing published object
// may be an accident.
func decide(lease outbox.Lease, endpoint endpoints.Endpoint, now time.Time) Decision {
	delay, health := deferralDelay(now.Sub(lease.Event.OccurredAt)), lease.Endpoint
	if lease.Event.TestMode {
		health = outbox.EndpointState{} // a test event is sent to a disabled endpoint, too
	}
	switch {
	case lease.Unsupported:
		return Decision{Defer, deferredUnsupported, delay}
	case endpoint.State == endpoints.Undecodable:
		return Decision{Defer, deferredUndecodable, delay}
	case endpoint.State == endpoints.Unknown:
		return Decision{Defer, deferredUnknown, delay}
	case endpoint.Awaits(lease.Event.Kind):
		return Decision{Defer, deferredRemoved, delay}
	case endpoint.Dropped && lease.Event.OccurredAt.Before(endpoint.RemovedAt.Add(published.WebhookGrace)): // it has waited
		return Decision{Action: Drop, Reason: OutcomeRemoved}
	case !endpoint.Wants(lease.Event.Kind): // this includes a withdrawn merchant
		return Decision{Action: Drop, Reason: outcomeDropped}
	case health.Unreadable && health.Target == endpoint.Target:
		return Decision{Defer, deferredUnreadable, delay}
	case health.Disabled() && health.Target == endpoint.Target:
		return Decision{Action: DeadLetter}
	case len(endpoint.Secrets) == 0:
		return Decision{Defer, deferredUnsigned, delay}
	case health.Disabled() || health.Unreadable:
		return Decision{Resume, deferredUnreadable, delay}
	}
	return Decision{Action: Send}
}

// The bounds of the delay of an event that cannot be sent yet.
const minDeferral, maxDeferral = 2 * time.Second, 5 * time.Minute

// deferralDelay grows with the age of the event: what is missing usually arrives soon with the watch; if it does not, a
// person has to repair it.
func deferralDelay(age time.Duration) time.Duration {
	return min(max(age/2, minDeferral), maxDeferral)
}

// deferralCauses are the causes of deferrals that a person can repair, by their reasons.
var deferralCauses = map[string]string{
	deferredUnknown:     "no object of their merchant is published, and its Merchant was not deleted",
	deferredUndecodable: "the published object of their merchant cannot be decoded",
	deferredRemoved:     "the webhook of their merchant was removed; they are dropped 24 hours after that",
	deferredChanged:     "another dispatcher knows a newer webhook of their merchant; the watch of this one is behind",
	deferredUnreadable:  "the state of their endpoint in Redis cannot be decoded; change webhook.resumeTrigger",
	deferredUnsigned:    "their merchant has no readable signing secret",
	deferredFrozen:      "the watch of the Kubernetes API is frozen, and as this dispatcher knows it no webhook wants them, or their disabled one has changed",
	deferredUnsupported: "a newer version wrote them; upgrade the dispatcher",
}

// Log logs why events wait, when they have waited for long.
func (d Decision) Log(log *loop.Log, lease outbox.Lease) {
	if d.Delay >= time.Minute && log.Allow(d.Reason, maxDeferral) {
		log.Warn("events are waiting", "reason", d.Reason, "cause", deferralCauses[d.Reason],
			"merchantID", lease.Event.MerchantID, "event", feed.HashID(lease.Event.ID))
	}
}

// HoldsMerchant reports whether the event is deferred for a reason that all events of its merchant share.
func (d Decision) HoldsMerchant(endpoint endpoints.Endpoint) bool {
	return d.Reason != deferredUnsupported && (d.Reason != deferredFrozen || endpoint.URL == "")
}
