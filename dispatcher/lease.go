package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// lease leases due events of a bucket and decides about each. ctx must outlive the shutdown of the loops: events that
// were leased must become known here.
func (d *dispatcher) lease(ctx context.Context, bucket session.Bucket) (more bool, err error) {
	room, each := d.leaseRoom(bucket)
	if each == 0 {
		return false, nil // the next poll tries again
	}
	holder, err := d.holders.in(bucket).confirm(ctx)
	if err != nil {
		return false, err
	}
	asked := d.now()
	leased, err := d.outbox.Lease(ctx, bucket, outbox.LeaseRequest{
		HolderIdentity: holder, For: d.options.Lease, Limit: leaseBatch, Room: room, Each: each,
	})
	for _, id := range leased.Undecodable {
		d.metrics.deadLettered(feed.Event{}, outbox.ReasonDecodeError)
		d.log.Error("could not decode an event; it is now a dead letter", "event", loop.EventHash(id))
	}
	if leased.Expired > 0 {
		d.metrics.expiredEvents(leased.Expired)
		d.log.Error("lost events that were not delivered within 30 days", "bucket", bucket, "events", leased.Expired)
	}
	if len(leased.Leases) > 0 {
		d.wake()
	}
	var deferrals []outbox.Deferral
	dropped := map[string]int{} // after they had waited for another webhook, by merchant id
	for _, lease := range leased.Leases {
		done := d.carryOut(ctx, lease, holder, leased.Now, asked)
		switch {
		case done.action == deferEvent:
			d.metrics.deferral(lease.Event, done.reason)
			deferrals = append(deferrals, outbox.Deferral{Lease: lease, Delay: jitter.Add(done.delay, jitter.Fraction())})
		case done.action == drop && done.reason == outcomeRemoved:
			dropped[lease.Event.MerchantID]++
		}
	}
	for merchantID, events := range dropped {
		d.log.Warn("dropped events of a webhook that was removed 24 hours ago", "merchantID", merchantID, "events", events)
	}
	return leased.More, errors.Join(err, d.outbox.Defer(ctx, bucket, deferrals...))
}

// leaseRoom returns for how many more events of the bucket's accounts there is room, 0 for a paused one, and for how many of each other.
func (d *dispatcher) leaseRoom(bucket session.Bucket) (room map[string]int, each int) {
	room, each = d.queues.room(bucket)
	now := d.now()
	waits := func(lease outbox.Lease) bool {
		decided, _ := d.decide(lease, now)
		return decided.action == deferEvent
	}
	for _, account := range d.waiting.accounts(bucket, now, waits) {
		room[account] = 0
	}
	return room, each
}

// paused returns the accounts of the bucket whose events this dispatcher cannot try now.
func (d *dispatcher) paused(bucket session.Bucket) []string {
	room, _ := d.leaseRoom(bucket)
	maps.DeleteFunc(room, func(_ string, room int) bool { return room > 0 })
	return slices.Collect(maps.Keys(room))
}

// carryOut does what is decided about a leased event, and returns what was done. To defer it is left to the caller.
func (d *dispatcher) carryOut(ctx context.Context, lease outbox.Lease, holder string, redisNow, asked time.Time) decision {
	decided, endpoint := d.decide(lease, redisNow)
	switch decided.action {
	case deferEvent:
		d.logDeferral(decided, lease)
		if decided.reason != deferredUnsupported && (decided.reason != deferredFrozen || endpoint.URL == "") {
			d.waiting.add(lease, asked.Add(decided.delay)) // so it is with all events of the account
			decided.delay = 0
		}
		return decided
	case drop:
		if !d.finish(ctx, lease, d.outbox.Drop) {
			return decision{} // it is due again when its lease ends
		}
		d.metrics.finished(lease.Event, cmp.Or(decided.reason, outcomeDropped))
		return decided
	case deadLetter:
		d.deadLetter(ctx, lease, outbox.Details{
			Reason: reasonDisabled, Answer: lease.Endpoint.LastFailure.Answer, Merchant: endpoint.Merchant.String(),
		})
		return decided
	case resume:
		if _, err := d.outbox.ResumeEndpoint(ctx, lease.Event.MerchantID, endpoint.Noted(d.index.Age())); err != nil {
			d.log.RedisFailed(err)
			return decision{deferEvent, deferredUnreadable, decided.delay}
		}
		d.healthChanged.Set()
	case send:
	}
	delay, reason, taken := d.queues.offer(ctx, job{
		lease:    lease,
		holder:   holder,
		endpoint: endpoint,
		asked:    asked,
		redisNow: redisNow,
		occurred: asked.Add(-redisNow.Sub(lease.Event.OccurredAt)),
		startBy:  asked.Add(d.options.Lease - delivery.Timeout - attemptMargin),
		leaseEnd: asked.Add(d.options.Lease),
	})
	if !taken {
		return decision{deferEvent, reason, delay}
	}
	return decided
}

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

// Why an event is deferred. They label a metric.
const (
	deferredBusy        = "busy"
	deferredChanged     = "endpoint_changed" // while an attempt failed, or another dispatcher knows a newer target
	deferredBreaker     = "breaker"
	deferredStopping    = "stopping"
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
			"merchantID", lease.Event.MerchantID, "event", loop.EventHash(lease.Event.ID))
	}
}

// waitingAccounts are those of which no event can be sent or dropped now, for a reason that all their events share: nothing is published
// of the merchant, or it has no signing secret. Such an account costs the same whatever its backlog, which stays in Redis untouched.
type waitingAccounts struct {
	mu       sync.Mutex
	byBucket [session.Buckets]map[string]waitingAccount
}

// waitingAccount waits until then, or until what is published allows to send or to drop this event of the account.
type waitingAccount struct {
	lease outbox.Lease
	until time.Time
}

func (w *waitingAccounts) add(lease outbox.Lease, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	bucket := lease.Event.Bucket()
	if w.byBucket[bucket] == nil {
		w.byBucket[bucket] = map[string]waitingAccount{}
	}
	w.byBucket[bucket][lease.Event.Account()] = waitingAccount{lease, until}
}

// accounts returns those that wait. It forgets the others.
func (w *waitingAccounts) accounts(bucket session.Bucket, now time.Time, waits func(outbox.Lease) bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var waiting []string
	for account, one := range w.byBucket[bucket] {
		if !now.Before(one.until) || !waits(one.lease) {
			delete(w.byBucket[bucket], account)
			continue
		}
		waiting = append(waiting, account)
	}
	return waiting
}
