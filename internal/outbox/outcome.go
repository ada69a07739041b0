package outbox

import (
	"context"
	"fmt"
	"slices"
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
	// Target is the fingerprint of where the attempt went.
	Target string
	// FailingLimit is how long an endpoint may do nothing but fail before it is disabled.
	FailingLimit time.Duration

	// Health is the reason in the words of conditions.
	Health string
	// Permanent: retrying cannot mend it, so the endpoint is unhealthy at once.
	Permanent bool
}

// Failed is what a failed attempt led to.
type Failed struct {
	// DeadLettered: the event is a dead letter now.
	DeadLettered bool
	// Dropped: the event is of test mode, and there is no further attempt.
	Dropped bool
	// Disabled: this attempt disabled the endpoint.
	Disabled bool
}

// Delivered ends an event that was delivered to the target, and with it the failing of its endpoint, of which an event of test mode
// says nothing. Errors: ErrLeaseLost,
// redis.ErrCorrupt, redis.ErrUnavailable.
func (o *Outbox) Delivered(ctx context.Context, lease Lease, target string) error {
	if lease.Event.TestMode {
		return o.Drop(ctx, lease)
	}
	space, merchantID := lease.space(), lease.Event.MerchantID
	var call redis.Call // allocates less than runLeased
	call.Key(space, QueueKey)
	call.Key(space, DueKey)
	call.Key(space, EventKey, lease.Event.ID)
	call.Key(space, EndpointKey, merchantID)
	call.Key(space, watchedKey)
	call.Text(lease.queued)
	call.Text(target)
	call.Text(merchantID)
	reply, err := o.redis.RunCall(ctx, endScript, &call)
	return leaseError("end a delivered event", &reply, err)
}

// Drop ends an event that nobody wants. Errors are those of Delivered.
func (o *Outbox) Drop(ctx context.Context, lease Lease) error {
	return o.runLeased(ctx, "drop an event", endScript, lease, nil)
}

// DeadLetter makes an event a dead letter without an attempt. Errors are those of Delivered.
func (o *Outbox) DeadLetter(ctx context.Context, lease Lease, details Details) error {
	keys := append(lease.keys(), lease.deadLetterKeys()...)
	reply, err := o.redis.Run(ctx, deadLetterScript, keys, lease.queued, details.Reason, details.Answer, details.Merchant)
	if err := leaseError("make an event a dead letter", &reply, err); err != nil {
		return err
	}
	o.dropOldest(ctx, lease, reply.List())
	return nil
}

// dropOldest drops dead letters beyond the bound of a merchant. What fails is left to the merchant's next dead letter.
func (o *Outbox) dropOldest(ctx context.Context, lease Lease, excess redis.Reply) {
	keys, ids := lease.deadLetterKeys(), []any{}
	for excess.More() {
		id := excess.Text()
		keys, ids = append(keys, lease.space().Key(EventKey, id)), append(ids, id)
	}
	if len(ids) == 0 || excess.Err() != nil {
		return
	}
	if reply, err := o.redis.Run(ctx, dropDeadLettersScript, keys, ids...); err == nil {
		reply.OK()
		o.dropped.Add(reply.Int())
	}
}

// DroppedDeadLetters is how many dead letters this Outbox has dropped, because their merchant had more than MaxDeadLetters.
func (o *Outbox) DroppedDeadLetters() int64 { return o.dropped.Load() }

// runLeased runs a script that has nothing to say but whether the lease was lost. It takes the keys of the queue and of the event
// first, then those of more, and the lease as its first argument.
func (o *Outbox) runLeased(ctx context.Context, what string, script *redis.Script, lease Lease, more []string, args ...any) error {
	reply, err := o.redis.Run(ctx, script, append(lease.keys(), more...), append([]any{lease.queued}, args...)...)
	return leaseError(what, &reply, err)
}

// Failed counts a failed attempt, and sets the time of the next one or makes the event a dead letter. An
// endpoint that is gone, or has failed for too long, is disabled, and the event with which it was is a dead letter. An event of
// test mode disables nothing, and is dropped instead.
// Errors are those of Delivered.
func (o *Outbox) Failed(ctx context.Context, lease Lease, failure Failure) (Failed, error) {
	const what = "record a failed attempt"
	switch dropped := failure.Retry < 0 || failure.Gone; {
	case lease.Event.TestMode && dropped:
		return Failed{Dropped: true}, o.Drop(ctx, lease)
	case lease.Event.TestMode:
		return Failed{}, o.runLeased(ctx, what, retryTestScript, lease, nil, wholeMillis(failure.Retry), failure.Reason)
	}
	merchantID := lease.Event.MerchantID
	keys := slices.Concat(lease.keys(), lease.deadLetterKeys(), endpointKeys(merchantID))
	reply, err := o.redis.Run(ctx, failScript, keys, lease.queued, wholeMillis(failure.Retry), failure.Reason,
		failure.Target, failure.FailingLimit.Milliseconds(), redis.Flag(failure.Gone), merchantID,
		failure.Answer, failure.Merchant, failure.Health, redis.Flag(failure.Permanent))
	if err := leaseError(what, &reply, err); err != nil {
		return Failed{}, err
	}
	failed := Failed{DeadLettered: reply.Int() == 1, Disabled: reply.Int() == 1}
	excess := reply.List()
	if err := reply.Err(); err != nil {
		return Failed{}, fmt.Errorf("%s: %w", what, err)
	}
	o.dropOldest(ctx, lease, excess)
	return failed, nil
}

// Deferral puts an event off, without counting an attempt.
type Deferral struct {
	Lease Lease
	// Delay is the time until it is due again; 0: at once.
	Delay time.Duration
}

// Defer puts events of one bucket off. Those whose lease was lost are left alone. The error is redis.ErrCorrupt or
// redis.ErrUnavailable.
func (o *Outbox) Defer(ctx context.Context, bucket session.Bucket, deferrals ...Deferral) error {
	if len(deferrals) == 0 {
		return nil
	}
	space := redis.KeyspaceOf(bucket)
	args := make([]any, 0, 2*len(deferrals))
	for _, deferral := range deferrals {
		args = append(args, deferral.Lease.queued, wholeMillis(deferral.Delay))
	}
	reply, err := o.redis.Run(ctx, deferScript, []string{space.Key(QueueKey), space.Key(DueKey)}, args...)
	return leaseError("put events off", &reply, err)
}

// wholeMillis never makes a moment that is not over yet into one that is, nor a negative time into none.
func wholeMillis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// leaseError reads the first word of a reply about a lease.
func leaseError(what string, reply *redis.Reply, err error) error {
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
