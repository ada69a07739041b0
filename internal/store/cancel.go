package store

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// Cancel ends a pending session of the asking merchant, and succeeds again when it was cancelled
// before. Errors are those of Session, HeldError while a payment holds it, and ErrSessionEnded when
// the session has ended otherwise: then the session is returned as well.
func (s *Store) Cancel(ctx context.Context, asks admission.Request, id session.ID) (admission.Admitted, session.Session, error) {
	if !asks.Owns(id) {
		return s.admitForeign(ctx, asks)
	}
	call := s.admitter.NewCall(cancelScript, &asks)
	call.AdmissionKeys()
	endKeys(&call.Call, asks.Space(), id)
	call.AdmissionArgs()
	call.Text("history", s.historyArg)
	admitted, _, reply, err := run(ctx, &call, "cancel a session")
	if err != nil {
		return admitted, session.Session{}, err
	}
	decision, fields := session.Decision(reply.Text()), reply.List()
	cancelled, err := sessionhash.Parse(id, &fields)
	left := time.Duration(reply.Int()) * time.Millisecond
	if err != nil || reply.Err() != nil {
		return admitted, session.Session{}, redis.ErrCorrupt
	}
	if decision == session.InProgress {
		return admitted, cancelled, HeldError{left}
	}
	if !decision.Ended() {
		return admitted, cancelled, ErrSessionEnded
	}
	return admitted, cancelled, nil
}
