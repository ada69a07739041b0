package store

import (
	"context"
	"errors"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// ErrLeaseLost says that the lease was given to somebody else since, or that its event is gone. Nothing was
// changed.
var ErrLeaseLost = errors.New("the lease was lost")

// Failure is an attempt that did not deliver an event.
type Failure struct {
	// Reason is a bounded word, kept with the event.
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

// Deferral puts an event off, without counting an attempt.
type Deferral struct {
	Lease Lease
	// Delay is the time until it is due again, 0: at once.
	Delay time.Duration
}

// EventDelivered ends an event that was delivered, and with it the failing of its endpoint. Errors:
// ErrLeaseLost, ErrCorrupt, ErrUnavailable.
func (s *Store) EventDelivered(context.Context, Lease) error { return ErrUnavailable }

// EventFailed counts a failed attempt, and sets the time of the next one or makes the event a dead letter. An
// endpoint that is gone, or has failed for too long, is disabled. Errors: ErrLeaseLost, ErrCorrupt, ErrUnavailable.
func (s *Store) EventFailed(context.Context, Lease, Failure) (Failed, error) {
	return Failed{}, ErrUnavailable
}

// DropEvent ends an event that nobody wants. Errors: ErrLeaseLost, ErrCorrupt, ErrUnavailable.
func (s *Store) DropEvent(context.Context, Lease) error { return ErrUnavailable }

// BuryEvent makes an event a dead letter without an attempt. The reason is a bounded word. Errors: ErrLeaseLost,
// ErrCorrupt, ErrUnavailable.
func (s *Store) BuryEvent(ctx context.Context, lease Lease, reason string) error {
	return ErrUnavailable
}

// DeferEvents puts events of one bucket off. Those whose lease was lost are left alone. The error is ErrCorrupt or
// ErrUnavailable.
func (s *Store) DeferEvents(context.Context, session.Bucket, ...Deferral) error {
	return ErrUnavailable
}
