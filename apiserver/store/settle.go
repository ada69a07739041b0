package store

import (
	"context"
	"errors"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// Settlement is what became of a reported payment. Neither Applied nor RefundRequired: no money has
// moved, and there is nothing to do.
type Settlement struct {
	// Session is as it is now.
	Session session.Session
	// Applied: this payment ended the session.
	Applied bool
	// RefundRequired: money has moved that the session does not take.
	RefundRequired bool
	// Repeated: the same report had been given before, and nothing has changed.
	Repeated bool
}

// Settle applies what a rail reports of a payment, which has been validated. The same report gets the
// same answer, however often it is given. Errors: ErrNotFound, also for the zero ID;
// ErrPaymentConflict, when the report contradicts an earlier one of the same reference;
// ErrCorrupt, ErrUnavailable.
func (s *Store) Settle(ctx context.Context, id session.ID, payment session.Payment) (Settlement, error) {
	return Settlement{}, errors.New("not built yet")
}
