package store

import (
	"context"

	"github.com/merchant-operator/merchant-operator/apiserver/ratelimit"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// PublicSession is what anyone who has the session id may see.
type PublicSession struct {
	MerchantName string
	AmountCents  int64
	Status       session.Status
}

// PublicSession reads what a payer may see of a session, expiring it first if it is due. Errors:
// ErrRateLimited, ErrNotFound (also for the zero ID), ErrCorrupt, ErrUnavailable. The quota is
// filled unless the error is one of the last two.
func (s *Store) PublicSession(ctx context.Context, admission PublicAdmission, id session.ID) (ratelimit.Quota, PublicSession, error) {
	return ratelimit.Quota{}, PublicSession{}, ErrUnavailable
}
