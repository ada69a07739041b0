package store

import (
	"context"
	"fmt"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Cancel ends a pending session of the asking merchant, and succeeds again when it was cancelled
// before. Errors are those of Session, and ErrSessionEnded when the session has ended otherwise: then
// the session is returned as well.
func (s *Store) Cancel(ctx context.Context, admission Admission, id session.ID) (Admitted, session.Session, error) {
	// In the merchant's own bucket, as with Session.
	var call words
	admission.keys(&call)
	call.key(admission.keyspace(), sessionKind, id.String())
	call.outboxKeys(admission.keyspace(), id, outbox.MarkEnded)
	s.admissionArgs(&call, &admission)
	call.add(admission.MerchantID)
	call.add(cancelRules)
	answer, err := s.runWords(ctx, cancelScript, &call)
	if err != nil {
		return Admitted{}, session.Session{}, fmt.Errorf("cancel a session: %w", err)
	}
	admitted, _, err := s.admittedOf(answer, &call, &admission)
	if err != nil {
		return admitted, session.Session{}, err
	}
	verdict := session.Verdict(answer.text())
	cancelled, err := sessionOf(id, answer.list())
	if err != nil || answer.broken {
		return admitted, session.Session{}, ErrCorrupt
	}
	if !verdict.Ended() {
		return admitted, cancelled, ErrSessionEnded
	}
	return admitted, cancelled, nil
}
