package store

import (
	"context"
	"fmt"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// Session reads a session of the asking merchant, expiring it first if it is due. Errors are those
// of Admit and ErrNotFound, which also stands for another merchant's session and for the zero ID.
func (s *Store) Session(ctx context.Context, admission Admission, id session.ID) (Admitted, session.Session, error) {
	// Looked up in the merchant's own bucket, whatever bucket the id names: sessions of merchants in
	// other buckets cannot be reached from here at all.
	keys := append(admission.keys(), admission.keyspace().session(id))
	answer, err := s.run(ctx, readScript, keys, append(admission.args(), admission.MerchantID)...)
	if err != nil {
		return Admitted{}, session.Session{}, fmt.Errorf("read a session: %w", err)
	}
	admitted, _, err := admittedOf(answer, admission.Limit)
	if err != nil {
		return admitted, session.Session{}, err
	}
	read, err := sessionOf(id, answer.list())
	return admitted, read, err
}
