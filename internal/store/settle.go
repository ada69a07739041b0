package store

import (
	"context"
	"fmt"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
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
// ErrCorrupt, ErrUnavailable. After the last one the report may have been applied: give it again. It is also the error
// when fewer replicas than Options.SettlementReplicas have confirmed it.
func (s *Store) Settle(ctx context.Context, id session.ID, payment session.Payment) (Settlement, error) {
	rules := failRules
	if payment.Outcome == session.Completed {
		rules = completeRules
	}
	paidAt, reason := "", ""
	if !payment.PaidAt.IsZero() {
		paidAt = decimal(payment.PaidAt.UnixMilli())
	}
	if payment.Outcome == session.Failed {
		reason = payment.Reason
	}
	space := keyspaceOf(id.Bucket())
	keys := []string{space.session(id)}
	for _, mark := range []outbox.Mark{outbox.MarkEnded, outbox.MarkLate(payment.Ref), outbox.MarkMismatch(payment.Ref)} {
		keys = append(keys, space.event(outbox.SessionEventID(id, mark)))
	}
	answer, err := s.runSettle(ctx, append(keys, space.queue(), space.due()),
		rules, string(payment.Outcome), payment.Ref, payment.AmountCents, paidAt, reason,
		max(reportLifetime, longestLifetime+s.retention).Milliseconds(), flag(s.settled != nil))
	if err != nil {
		return Settlement{}, fmt.Errorf("settle a session: %w", err)
	}
	switch answer.text() {
	case wordOK:
		return settlementOf(id, answer)
	case "NOT_FOUND":
		return Settlement{}, ErrNotFound
	default: // "CORRUPT" among them
		return Settlement{}, ErrCorrupt
	}
}

func settlementOf(id session.ID, answer *reply) (Settlement, error) {
	verdict := session.Verdict(answer.text())
	settled, err := sessionOf(id, answer.list())
	if err != nil || answer.broken {
		return Settlement{}, ErrCorrupt
	}
	if verdict == session.Contradicted {
		return Settlement{}, ErrPaymentConflict
	}
	return Settlement{
		Session:        settled,
		Applied:        verdict.Ended(),
		RefundRequired: verdict.RefundRequired(),
		Repeated:       verdict == session.Repeated || verdict == session.RefundedAgain,
	}, nil
}
