package dispatcher

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// action is what to do with a leased event.
type action int

const (
	send       action = iota
	resume            // send; the endpoint's target is another one than that which was disabled
	drop              // the merchant does not want it
	deadLetter        // the endpoint is disabled
	deferEvent        // until more is known
)

// decision is an action; reason belongs to deferEvent and drop, delay to deferEvent and to a resume that fails.
type decision struct {
	action action
	reason string
	delay  time.Duration
}

// Why an event is deferred, beside the reasons of its queue. They label a metric.
const (
	deferredChanged     = "endpoint_changed" // while an attempt failed, or another dispatcher knows a newer target
	deferredUnsigned    = "no_secret"
	deferredUnknown     = "unknown_merchant"
	deferredUndecodable = "merchant_decode_error"
	deferredRemoved     = "webhook_removed"
	deferredUnreadable  = "endpoint_decode_error"
	// deferredUnsupported: a newer version wrote the event, and a newer dispatcher will deliver it.
	deferredUnsupported = "unsupported_event"
	// deferredFrozen: it would be dropped or become a dead letter, or be sent to another target than the disabled one; but the watch is frozen,
	// and the merchant may want it by now, or have another target.
	deferredFrozen = "frozen_watch"
)

// reasonDisabled is the dead letter's reason for an event of a disabled endpoint.
const reasonDisabled = "endpoint_disabled"

// decide also returns the endpoint that it decided about. While the watch is frozen it drops nothing, makes no dead letters, and
// resumes no endpoint. Events are left to a dispatcher that knows a newer target.
func (d *dispatcher) decide(lease outbox.Lease, now time.Time) (decision, endpoints.Endpoint) {
	age := d.index.Age() // read first: the endpoint is not older
	endpoint := d.index.Endpoint(lease.Event.MerchantID)
	decided := decide(lease, endpoint, now)
	if decided.action != deferEvent && lease.Endpoint.Outdates(endpoint.Noted(age), now) {
		return decision{deferEvent, deferredChanged, deferralDelay(now.Sub(lease.Event.OccurredAt))}, endpoint
	}
	if age > endpoints.MaxAge && (decided.action == drop || decided.action == deadLetter || decided.action == resume) {
		decided = decision{deferEvent, deferredFrozen, deferralDelay(now.Sub(lease.Event.OccurredAt))}
	}
	return decided, endpoint
}

// decide says what to do with a leased event; now is the time of Redis. Dropping an event loses it, so it requires that the operator
// says so: that the merchant was deleted, never had a webhook for it, or had none for published.WebhookGrace. A missing published object
// may be an accident.
func decide(lease outbox.Lease, endpoint endpoints.Endpoint, now time.Time) decision {
	delay, health := deferralDelay(now.Sub(lease.Event.OccurredAt)), lease.Endpoint
	if lease.Event.TestMode {
		health = outbox.EndpointState{} // a test event is sent to a disabled endpoint, too
	}
	switch {
	case lease.Unsupported:
		return decision{deferEvent, deferredUnsupported, delay}
	case endpoint.State == endpoints.Undecodable:
		return decision{deferEvent, deferredUndecodable, delay}
	case endpoint.State == endpoints.Unknown:
		return decision{deferEvent, deferredUnknown, delay}
	case endpoint.Awaits(lease.Event.Kind):
		return decision{deferEvent, deferredRemoved, delay}
	case endpoint.Dropped && lease.Event.OccurredAt.Before(endpoint.RemovedAt.Add(published.WebhookGrace)): // it has waited
		return decision{action: drop, reason: outcomeRemoved}
	case !endpoint.Wants(lease.Event.Kind): // this includes a withdrawn merchant
		return decision{action: drop}
	case health.Unreadable && health.Target == endpoint.Target:
		return decision{deferEvent, deferredUnreadable, delay}
	case health.Disabled() && health.Target == endpoint.Target:
		return decision{action: deadLetter}
	case len(endpoint.Secrets) == 0:
		return decision{deferEvent, deferredUnsigned, delay}
	case health.Disabled() || health.Unreadable:
		return decision{action: resume, delay: delay}
	}
	return decision{action: send}
}

// The bounds of the delay of an event that cannot be sent yet.
const minDeferral, maxDeferral = 2 * time.Second, 5 * time.Minute

// deferralDelay grows with the age of the event: what is missing usually arrives soon with the watch; if it does not, a
// person has to repair it.
func deferralDelay(age time.Duration) time.Duration {
	return min(max(age/2, minDeferral), maxDeferral)
}

// deferralCauses are those that a person can repair.
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

// logDeferral logs why events wait, when they have waited for long.
func (d *dispatcher) logDeferral(decided decision, lease outbox.Lease) {
	if decided.delay >= time.Minute && d.log.Allow(decided.reason, maxDeferral) {
		d.log.Warn("events are waiting", "reason", decided.reason, "cause", deferralCauses[decided.reason],
			"merchantID", lease.Event.MerchantID, "event", feed.HashID(lease.Event.ID))
	}
}
