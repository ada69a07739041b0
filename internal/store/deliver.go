package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// ErrLeaseLost says that the lease was given to somebody else since, or that its event is gone. Nothing was
// changed.
var ErrLeaseLost = errors.New("the lease was lost")

// Failure is an attempt that did not deliver an event.
type Failure struct {
	// Reason is a word of a closed list, kept with the event.
	Reason string
	// Retry is the time to the next attempt; negative: there is none, and the event is a dead letter.
	Retry time.Duration
	// Gone: the endpoint said that it wants no more events.
	Gone bool
	// Target is the fingerprint of where the attempt went.
	Target string
	// FailingLimit is how long an endpoint may do nothing but fail before it is disabled.
	FailingLimit time.Duration
}

// Failed is what a failed attempt led to.
type Failed struct {
	// Buried: the event is a dead letter now.
	Buried bool
	// Disabled: this attempt disabled the endpoint.
	Disabled bool
}

// EventDelivered ends an event that was delivered, and with it the failing of its endpoint. Errors: ErrLeaseLost,
// ErrCorrupt, ErrUnavailable.
func (s *Store) EventDelivered(ctx context.Context, lease Lease) error {
	return s.end(ctx, "end a delivered event", lease, lease.keyspace().endpoint(lease.Event.MerchantID))
}

// DropEvent ends an event that nobody wants. Errors: ErrLeaseLost, ErrCorrupt, ErrUnavailable.
func (s *Store) DropEvent(ctx context.Context, lease Lease) error {
	return s.end(ctx, "drop an event", lease)
}

func (s *Store) end(ctx context.Context, what string, lease Lease, endpoint ...string) error {
	space := lease.keyspace()
	keys := append([]string{space.queue(), space.due(), space.event(lease.Event.ID)}, endpoint...)
	answer, err := s.run(ctx, deliveredScript, keys, lease.queued)
	return leaseError(what, answer, err)
}

// EventFailed counts a failed attempt, and sets the time of the next one or makes the event a dead letter. An
// endpoint that is gone, or has failed for too long, is disabled, and the event with which it was is a dead letter.
// Errors: ErrLeaseLost, ErrCorrupt, ErrUnavailable.
func (s *Store) EventFailed(ctx context.Context, lease Lease, failure Failure) (Failed, error) {
	const what = "record a failed attempt"
	space, merchantID := lease.keyspace(), lease.Event.MerchantID
	keys := []string{
		space.queue(), space.due(), space.event(lease.Event.ID), space.dead(), space.endpoint(merchantID), space.troubled(),
	}
	answer, err := s.run(ctx, failedScript, keys, lease.queued, wholeMillis(failure.Retry), failure.Reason,
		failure.Target, failure.FailingLimit.Milliseconds(), flag(failure.Gone), merchantID)
	if err := leaseError(what, answer, err); err != nil {
		return Failed{}, err
	}
	failed := Failed{Buried: answer.integer() == 1, Disabled: answer.integer() == 1}
	if answer.broken {
		return Failed{}, fmt.Errorf("%s: %w", what, ErrCorrupt)
	}
	return failed, nil
}

// Deferral puts an event off, without counting an attempt.
type Deferral struct {
	Lease Lease
	// Delay is the time until it is due again; 0: at once.
	Delay time.Duration
}

// DeferEvents puts events of one bucket off. Those whose lease was lost are left alone. The error is ErrCorrupt or
// ErrUnavailable.
func (s *Store) DeferEvents(ctx context.Context, bucket session.Bucket, deferrals ...Deferral) error {
	if len(deferrals) == 0 {
		return nil
	}
	space := keyspaceOf(bucket)
	args := make([]any, 0, 2*len(deferrals))
	for _, deferral := range deferrals {
		args = append(args, deferral.Lease.queued, wholeMillis(deferral.Delay))
	}
	answer, err := s.run(ctx, deferredScript, []string{space.queue(), space.due()}, args...)
	return leaseError("put events off", answer, err)
}

// wholeMillis never makes a moment that is not over yet into one that is, nor a negative time into none.
func wholeMillis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// leaseError reads the first word of an answer to a lease.
func leaseError(what string, answer *reply, err error) error {
	if err == nil {
		switch answer.text() {
		case wordOK:
			return nil
		case "STALE":
			err = ErrLeaseLost
		default:
			err = ErrCorrupt
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}
