package store

import (
	"context"
	"fmt"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Session reads a session of the asking merchant, expiring it first if it is due. Errors are those
// of Admit and ErrNotFound, which also stands for another merchant's session and for the zero ID.
func (s *Store) Session(ctx context.Context, admission Admission, id session.ID) (Admitted, session.Session, error) {
	// Looked up in the merchant's own bucket, whatever bucket the id names: sessions of merchants in
	// other buckets cannot be reached from here at all.
	var call words
	admission.keys(&call)
	call.key(admission.keyspace(), sessionKind, id.String())
	call.outboxKeys(admission.keyspace(), id, outbox.MarkEnded)
	s.admissionArgs(&call, &admission)
	answer, err := s.runWords(ctx, readScript, &call)
	if err != nil {
		return Admitted{}, session.Session{}, fmt.Errorf("read a session: %w", err)
	}
	admitted, _, err := s.admittedOf(answer, &call, &admission)
	if err != nil {
		return admitted, session.Session{}, err
	}
	fields := answer.list()
	// Two merchants may share a bucket, so the key alone does not tell whose session this is.
	if !ownedBy(admission.MerchantID, fields) {
		return admitted, session.Session{}, ErrNotFound
	}
	read, err := sessionOf(id, fields)
	return admitted, read, err
}
