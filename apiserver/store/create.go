package store

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// NewSession is a session to be created. Its charge has been validated.
type NewSession struct {
	// ID must be in the merchant's bucket: session.NewID(session.BucketOf(merchantID)).
	ID           session.ID
	MerchantName string
	Charge       session.Charge
	// Lifetime is from creation to expiry, to the millisecond.
	Lifetime time.Duration
	// Idempotency is the caller's Idempotency-Key; zero: none.
	Idempotency session.IdempotencyKey
	// RejectMismatch asks for ErrIdempotencyMismatch when the key was used with another charge;
	// else the original session is returned.
	RejectMismatch bool
}

// Created is the outcome of a create request.
type Created struct {
	// Session is the new session or, when Replayed, the original one with its live status.
	Session session.Session
	// Replayed: the Idempotency-Key had been used before, and nothing was created.
	Replayed bool
	// Mismatch: it had been used with another charge than this one.
	Mismatch bool
}

// CreateSession creates a session, or returns the one its Idempotency-Key already made. Errors are
// those of Admit and ErrIdempotencyMismatch. No error uses the key up, but after ErrUnavailable
// the session may exist: the same Idempotency-Key makes a retry safe.
func (s *Store) CreateSession(ctx context.Context, admission Admission, wanted NewSession) (Admitted, Created, error) {
	return Admitted{}, Created{}, ErrUnavailable
}
