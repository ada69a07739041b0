package store

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// Why an endpoint is disabled.
const (
	// EndpointGone: it answered 410.
	EndpointGone = "gone"
	// EndpointFailing: it did nothing but fail for too long.
	EndpointFailing = "failing"
)

// EndpointState is what Redis remembers of a merchant's endpoint while something is wrong with it. The zero
// state is a healthy one.
type EndpointState struct {
	MerchantID string
	// Target is the fingerprint of where the attempts went that went wrong, and of the way on once resumed.
	Target string
	// FailingSince is when the first attempt failed after the last one that delivered.
	FailingSince time.Time
	// DisabledAt is since when no events are sent, and Cause why; zero: they are.
	DisabledAt time.Time
	Cause      string
	// ResumedAt is since when events are sent again; zero: they were never stopped, or stopped again.
	ResumedAt time.Time
	// Told: what was said of it last, disabled or resumed, has been passed on.
	Told bool
}

// Disabled reports whether no events may be sent to the target.
func (e EndpointState) Disabled() bool { return !e.DisabledAt.IsZero() }

// ResumeEndpoint lets events be sent again to an endpoint that was disabled for another target than this one, and
// reports whether it was. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) ResumeEndpoint(ctx context.Context, merchantID, target string) (bool, error) {
	return false, ErrUnavailable
}

// TroubledEndpoints returns the endpoints of a bucket that are disabled, or resumed and not yet told of, at most
// limit of them. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) TroubledEndpoints(ctx context.Context, bucket session.Bucket, limit int) ([]EndpointState, error) {
	return nil, ErrUnavailable
}

// EndpointTold remembers that this state has been passed on, unless it has changed since. The error is ErrCorrupt or
// ErrUnavailable.
func (s *Store) EndpointTold(ctx context.Context, state EndpointState) error { return ErrUnavailable }
