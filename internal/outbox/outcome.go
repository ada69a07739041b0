package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Details are what people see of a dead letter, besides its event.
type Details struct {
	// Reason is a word of a closed list.
	Reason string
	// Answer is the endpoint's last one: an HTTP status, or the reason why there was none. Empty: nothing was sent.
	Answer string
	// Merchant is namespace and name of the Merchant; empty: they are not known.
	Merchant string
}

// Failure is an attempt that did not deliver an event.
type Failure struct {
	// Details are kept with the event if this was its last attempt.
	Details
	// Retry is the time to the next attempt; negative: there is none, and the event is a dead letter.
	Retry time.Duration
	// Gone: the endpoint said that it wants no more events.
	Gone bool
	// Target is where the attempt went.
	Target Target
	// FailingLimit is how long an endpoint may only fail before it is disabled.
	FailingLimit time.Duration

	// Health is the reason in the words of conditions.
	Health string
	// Permanent: retrying cannot fix it, so the endpoint is unhealthy at once.
	Permanent bool
	// Took is how long the attempt took.
	Took time.Duration
}

// Failed is what a failed attempt led to.
type Failed struct {
	// DeadLettered: the event is a dead letter now.
	DeadLettered bool
	// Dropped: the event is of test mode, and there is no further attempt.
	Dropped bool
	// Disabled: this attempt disabled the endpoint.
	Disabled bool
	// Outdated: the attempt went to a former target, so it counts nowhere, and the event is due at once.
	Outdated bool
}

// RecordDelivery ends an event that was delivered to the target, and with it the failing of its endpoint, unless it is of test mode.
// Errors: ErrLeaseLost, redis.ErrCorrupt, redis.ErrUnavailable.
func (o *Outbox) RecordDelivery(ctx context.Context, lease Lease, target Target) error {
	const what = "end a delivered event"
	if lease.Event.TestMode {
		return o.end(ctx, lease, what)
	}
	call := redis.NewCall(endScript)
	lease.keys(&call)
	endpointKeys(&call, lease.Event.MerchantID)
	call.Text("leased", lease.queued)
	target.write(&call)
	call.Text("merchant", lease.Event.MerchantID)
	reply, err := o.redis.Run(ctx, &call)
	return LeaseError(what, &reply, err)
}

// Drop ends an event that is not to be delivered. Errors are those of RecordDelivery.
func (o *Outbox) Drop(ctx context.Context, lease Lease) error {
	return o.end(ctx, lease, "drop an event")
}

// end ends an event and leaves the health of its endpoint as it is.
func (o *Outbox) end(ctx context.Context, lease Lease, what string) error {
	call := redis.NewCall(endScript)
	lease.keys(&call)
	call.Text("leased", lease.queued)
	reply, err := o.redis.Run(ctx, &call)
	return LeaseError(what, &reply, err)
}

// DeadLetter makes an event a dead letter without an attempt. Errors are those of RecordDelivery.
func (o *Outbox) DeadLetter(ctx context.Context, lease Lease, details Details) error {
	call := redis.NewCall(deadLetterScript)
	lease.keys(&call)
	lease.deadLetterKeys(&call)
	call.Text("leased", lease.queued)
	call.Text("reason", details.Reason)
	call.Text("answer", details.Answer)
	call.Text("merchant_name", details.Merchant)
	reply, err := o.redis.Run(ctx, &call)
	if err := LeaseError("make an event a dead letter", &reply, err); err != nil {
		return err
	}
	o.dropOldest(ctx, lease, reply.List())
	return nil
}

// dropOldest drops dead letters beyond the bound of a merchant. What fails is left to the merchant's next dead letter.
func (o *Outbox) dropOldest(ctx context.Context, lease Lease, excess redis.Reply) {
	var ids []string
	for excess.More() {
		ids = append(ids, excess.Text())
	}
	if len(ids) == 0 || excess.Err() != nil {
		return
	}
	call := redis.NewCall(dropDeadLettersScript)
	lease.deadLetterKeys(&call)
	for _, id := range ids {
		call.MoreKey(lease.space(), EventKey, id)
	}
	for _, id := range ids {
		call.More(id)
	}
	if reply, err := o.redis.Run(ctx, &call); err == nil {
		reply.RequireOK()
		o.dropped.Add(reply.Int())
	}
}

// DroppedDeadLetters is how many dead letters this Outbox has dropped, because their merchant had more than MaxDeadLetters.
func (o *Outbox) DroppedDeadLetters() int64 { return o.dropped.Load() }

// RecordFailure counts a failed attempt, and sets the time of the next one or makes the event a dead letter. An
// endpoint that is gone, or has failed for too long, is disabled, and the event of that attempt becomes a dead letter. An event of
// test mode disables nothing, and ends instead. A former target disables nothing either.
// Errors are those of RecordDelivery.
func (o *Outbox) RecordFailure(ctx context.Context, lease Lease, failure Failure) (Failed, error) {
	const what = "record a failed attempt"
	switch dropped := failure.Retry < 0 || failure.Gone; {
	case lease.Event.TestMode && dropped:
		return Failed{Dropped: true}, o.end(ctx, lease, what)
	case lease.Event.TestMode:
		call := redis.NewCall(retryTestScript)
		lease.keys(&call)
		call.Text("leased", lease.queued)
		call.Int("delay", wholeMillis(failure.Retry))
		call.Text("reason", failure.Reason)
		reply, err := o.redis.Run(ctx, &call)
		return Failed{}, LeaseError(what, &reply, err)
	}
	call := redis.NewCall(failScript)
	lease.keys(&call)
	lease.deadLetterKeys(&call)
	endpointKeys(&call, lease.Event.MerchantID)
	call.Text("leased", lease.queued)
	call.Int("delay", wholeMillis(failure.Retry))
	call.Text("reason", failure.Reason)
	call.Text("answer", failure.Answer)
	call.Text("merchant_name", failure.Merchant)
	failure.Target.write(&call)
	call.Millis("failing_limit", failure.FailingLimit)
	call.Flag("gone", failure.Gone)
	call.Text("merchant", lease.Event.MerchantID)
	call.Text("health", failure.Health)
	call.Flag("permanent", failure.Permanent)
	call.Text("attempt", Attempt{Kind: lease.Event.Kind, Reason: failure.Reason, Answer: failure.Answer, Took: failure.Took}.text())
	reply, err := o.redis.Run(ctx, &call)
	if err := LeaseError(what, &reply, err); err != nil {
		return Failed{}, err
	}
	failed := Failed{DeadLettered: reply.Int() == 1, Disabled: reply.Int() == 1}
	excess := reply.List()
	failed.Outdated = reply.Int() == 1
	if err := reply.Err(); err != nil {
		return Failed{}, fmt.Errorf("%s: %w", what, err)
	}
	o.dropOldest(ctx, lease, excess)
	return failed, nil
}

// Deferral defers an event, without counting an attempt.
type Deferral struct {
	Lease Lease
	// Delay is the time until it is due again; 0: at once.
	Delay time.Duration
}

// Defer defers events of one bucket. Those whose lease was lost are left alone. The error is redis.ErrCorrupt or
// redis.ErrUnavailable.
func (o *Outbox) Defer(ctx context.Context, bucket session.Bucket, deferrals ...Deferral) error {
	if len(deferrals) == 0 {
		return nil
	}
	space := redis.BucketKeyspace(bucket)
	call := redis.NewCall(deferScript)
	call.Key("queue_key", space, QueueKey)
	call.Key("due_key", space, DueKey)
	for _, deferral := range deferrals {
		call.More(deferral.Lease.queued)
		call.MoreInt(wholeMillis(deferral.Delay))
	}
	reply, err := o.redis.Run(ctx, &call)
	return LeaseError("defer events", &reply, err)
}

// wholeMillis rounds up: a time that is not over yet must not become one that is, nor a negative one none.
func wholeMillis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// LeaseError reads the first word of a reply about a lease, of an event or of a receipt. STALE is ErrLeaseLost.
func LeaseError(what string, reply *redis.Reply, err error) error {
	if err == nil {
		switch reply.Text() {
		case "OK":
			return nil
		case "STALE":
			err = ErrLeaseLost
		default:
			err = redis.ErrCorrupt
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}
