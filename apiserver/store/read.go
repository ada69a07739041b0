package store

import (
	"context"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// Session reads a session of the asking merchant, expiring it first if it is due. Errors are those
// of Admit and ErrNotFound, which also stands for another merchant's session and for the zero ID.
func (s *Store) Session(ctx context.Context, admission Admission, id session.ID) (Admitted, session.Session, error) {
	return Admitted{}, session.Session{}, ErrUnavailable
}
