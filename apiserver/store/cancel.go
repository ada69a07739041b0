package store

import (
	"context"
	"errors"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// Cancel ends a pending session of the asking merchant, and succeeds again when it was cancelled
// before. Errors are those of Session, and ErrSessionEnded when the session has ended otherwise: then
// the session is returned as well.
func (s *Store) Cancel(ctx context.Context, admission Admission, id session.ID) (Admitted, session.Session, error) {
	return Admitted{}, session.Session{}, errors.New("not built yet")
}
