package store

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Why an endpoint is disabled.
const (
	// EndpointGone: it said that it wants no more events.
	EndpointGone = "gone"
	// EndpointFailing: it did nothing but fail for too long.
	EndpointFailing = "failing"
)

// EndpointState is what Redis remembers of a merchant's endpoint while something is wrong with it. That of a
// healthy one has only its MerchantID.
type EndpointState struct {
	MerchantID string
	// Target is the fingerprint of where the attempts went that failed, or go since it was resumed.
	Target string
	// FailingSince is when the first attempt failed after the last one that delivered; zero: none did.
	FailingSince time.Time
	// DisabledAt is since when no events are sent, and Cause why; zero: they are.
	DisabledAt time.Time
	Cause      string
	// ResumedAt is since when events are sent again, until that has been passed on; else zero.
	ResumedAt time.Time
	// Told: that it is disabled has been passed on.
	Told bool
}

// Disabled reports whether no events may be sent to the Target.
func (e EndpointState) Disabled() bool { return !e.DisabledAt.IsZero() }

// endpoint holds what is wrong with the endpoint of a merchant.
func (k keyspace) endpoint(merchantID string) string { return string(k) + "endpoint:" + merchantID }

// troubled holds the merchants whose endpoint is disabled, or was resumed and that is not passed on yet, by time.
func (k keyspace) troubled() string { return string(k) + "troubled" }

// endpointOf decodes the fields in the order of endpoint.lua.
func endpointOf(merchantID string, fields *reply) (EndpointState, error) {
	state := EndpointState{
		MerchantID:   merchantID,
		Target:       fields.optionalText(),
		FailingSince: fields.optionalMillis(),
		DisabledAt:   fields.optionalMillis(),
		Cause:        fields.optionalText(),
		ResumedAt:    fields.optionalMillis(),
		Told:         fields.optionalText() == "1",
	}
	if fields.broken {
		return EndpointState{}, ErrCorrupt
	}
	return state, nil
}

// ResumeEndpoint lets events be sent again if the merchant's endpoint was disabled for another target than this
// one, and reports whether it was. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) ResumeEndpoint(ctx context.Context, merchantID, target string) (bool, error) {
	space := keyspaceOf(session.BucketOf(merchantID))
	answer, err := s.run(ctx, endpointResumeScript, []string{space.endpoint(merchantID), space.troubled()}, target, merchantID)
	if err != nil {
		return false, fmt.Errorf("resume an endpoint: %w", err)
	}
	ok := answer.text() == wordOK
	resumed := answer.integer() == 1
	if !ok || answer.broken {
		return false, fmt.Errorf("resume an endpoint: %w", ErrCorrupt)
	}
	return resumed, nil
}

// TroubledEndpoints returns the endpoints of a bucket that are disabled, or were resumed and that is not passed on
// yet. Those that cannot be read are left out. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) TroubledEndpoints(ctx context.Context, bucket session.Bucket) ([]EndpointState, error) {
	space := keyspaceOf(bucket)
	answer, err := s.run(ctx, endpointTroubledScript, []string{space.troubled()}, space.endpoint(""))
	if err != nil {
		return nil, fmt.Errorf("read troubled endpoints: %w", err)
	}
	ok := answer.text() == wordOK
	rows := answer.list()
	if !ok || answer.broken {
		return nil, fmt.Errorf("read troubled endpoints: %w", ErrCorrupt)
	}
	var states []EndpointState
	for len(rows.rest) > 0 {
		row := rows.list()
		state, err := endpointOf(row.text(), row.list())
		switch {
		case err != nil || row.broken:
		case state.Disabled() || !state.ResumedAt.IsZero():
			states = append(states, state)
		default: // it is healthy again; that it is must be seen by a script that declares its key
			if err := s.EndpointTold(ctx, state); err != nil {
				return states, err
			}
		}
	}
	return states, nil
}

// EndpointTold remembers that this state has been passed on, unless it has changed since. The error is ErrCorrupt or
// ErrUnavailable.
func (s *Store) EndpointTold(ctx context.Context, state EndpointState) error {
	space := keyspaceOf(session.BucketOf(state.MerchantID))
	answer, err := s.run(ctx, endpointToldScript, []string{space.endpoint(state.MerchantID), space.troubled()},
		optionalTime(state.DisabledAt), optionalTime(state.ResumedAt), state.MerchantID)
	if err != nil {
		return fmt.Errorf("remember what was told of an endpoint: %w", err)
	}
	if answer.text() != wordOK {
		return fmt.Errorf("remember what was told of an endpoint: %w", ErrCorrupt)
	}
	return nil
}

// optionalTime writes a time in milliseconds, and nothing for none.
func optionalTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return decimal(t.UnixMilli())
}
