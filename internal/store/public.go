package store

import (
	"context"
	"fmt"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// PublicAdmission is who asks without a key.
type PublicAdmission struct {
	// Subject is who is counted, such as ip:203.0.113.7. It must not look like a merchant id.
	Subject string
	// Limit bounds the subject's requests in each bucket.
	Limit ratelimit.Policy
}

// PublicSession is what anyone who has the session id may see.
type PublicSession struct {
	MerchantName string
	AmountCents  int64
	Status       session.Status
}

// PublicSession reads what a payer may see of a session, expiring it first if it is due. Errors:
// ErrRateLimited, ErrNotFound (also for the zero ID), ErrCorrupt, ErrUnavailable. The quota is
// filled unless the error is one of the last two.
func (s *Store) PublicSession(
	ctx context.Context, admission PublicAdmission, id session.ID,
) (ratelimit.Quota, PublicSession, error) {
	space := keyspaceOf(id.Bucket())
	var call words
	call.key(space, rateKind, admission.Subject)
	call.key(space, sessionKind, id.String())
	call.outboxKeys(space, id, outbox.MarkEnded)
	limitArgs(&call, admission.Limit)
	answer, err := s.runWords(ctx, publicScript, &call)
	if err != nil {
		return ratelimit.Quota{}, PublicSession{}, fmt.Errorf("read a session publicly: %w", err)
	}
	admitted, _, err := admittedOf(answer, admission.Limit)
	if err != nil {
		return admitted.Quota, PublicSession{}, err
	}
	status := answer.status()
	facts, ok := fixedOf(answer.text())
	if answer.broken || !ok {
		return ratelimit.Quota{}, PublicSession{}, ErrCorrupt
	}
	return admitted.Quota, PublicSession{Status: status, MerchantName: facts.merchantName, AmountCents: facts.charge.AmountCents}, nil
}
