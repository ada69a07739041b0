package store

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// NewSession is a session to be created. Its charge has been validated.
type NewSession struct {
	MerchantName string
	Charge       session.Charge
	// Lifetime is from creation to expiry, to the millisecond.
	Lifetime time.Duration
	// Idempotency is the caller's Idempotency-Key; zero: none.
	Idempotency session.IdempotencyKey
	// RejectMismatch asks for ErrIdempotencyMismatch when the key was used with another charge;
	// else the original session is returned.
	RejectMismatch bool
	// TellCreated: the merchant asks for session.created.
	TellCreated bool
}

// Created is the outcome of a create request.
type Created struct {
	// Session is the new session or, when Replayed, the original one with its live status.
	Session session.Session
	// Replayed: the Idempotency-Key had been used before, and nothing was created.
	Replayed bool
	// Mismatch: it had been used with another charge than this one.
	Mismatch bool
}

// CreateSession creates a session, or returns the one its Idempotency-Key already made. Errors are
// those of Admit and ErrIdempotencyMismatch. No error uses the key up, but after ErrUnavailable
// the session may exist: the same Idempotency-Key makes a retry safe.
func (s *Store) CreateSession(ctx context.Context, admission Admission, wanted NewSession) (Admitted, Created, error) {
	id := session.NewID(session.BucketOf(admission.MerchantID))
	var call words
	s.createCall(&call, &admission, &wanted, id)
	answer, err := s.runWords(ctx, createScript, &call)
	if err != nil {
		return Admitted{}, Created{}, fmt.Errorf("create a session: %w", err)
	}
	admitted, word, err := s.admittedOf(answer, &call, &admission)
	if err != nil {
		return admitted, Created{}, err
	}
	if word != wordReplayed {
		return admitted, Created{Session: newSession(id, admission.MerchantID, wanted, admitted.Now)}, nil
	}
	created, err := s.replayOf(ctx, answer, admission, admitted.Now)
	return admitted, created, err
}

// createCall writes what create.lua takes.
func (s *Store) createCall(call *words, admission *Admission, wanted *NewSession, id session.ID) {
	space, once := admission.keyspace(), !wanted.Idempotency.IsZero()
	lifetime := decimal(wanted.Lifetime.Milliseconds())
	admission.keys(call)
	call.key(space, sessionKind, id.String())
	call.key(space, lineKind, lifetime)
	call.key(space, expiryKind, "")
	if once {
		call.key(space, idempotencyKind+admission.MerchantID+":", wanted.Idempotency.Hash())
	}
	if wanted.TellCreated {
		call.outboxKeys(space, id, outbox.MarkCreated)
	}
	s.admissionArgs(call, admission)
	call.add(lifetime)
	call.integer((wanted.Lifetime + s.retention).Milliseconds())
	call.fixed(admission.MerchantID, wanted)
	if once || wanted.TellCreated || wanted.Charge.CustomerEmail != "" {
		call.add(flag(wanted.TellCreated))
		call.add(wanted.Charge.CustomerEmail)
	}
	if once {
		call.integer(max(wanted.Lifetime, idempotencyLifetime).Milliseconds())
		call.add(wanted.Charge.Fingerprint())
		call.add(flag(wanted.RejectMismatch))
	}
}

// newSession is the session create.lua has just written.
func newSession(id session.ID, merchantID string, wanted NewSession, now time.Time) session.Session {
	createdAt := now.Truncate(time.Millisecond)
	return session.Session{
		ID:           id,
		MerchantID:   merchantID,
		MerchantName: wanted.MerchantName,
		Status:       session.Pending,
		Charge:       wanted.Charge,
		CreatedAt:    createdAt,
		ExpiresAt:    createdAt.Add(wanted.Lifetime.Truncate(time.Millisecond)),
	}
}

// replayOf reads the original. The script that found it could not declare its key, so what it may not write is left to a second one:
// that an original is gone, or expires.
func (s *Store) replayOf(ctx context.Context, answer *reply, admission Admission, now time.Time) (Created, error) {
	id, err := session.ParseID(answer.text())
	if err != nil {
		return Created{}, ErrCorrupt
	}
	same, fields := answer.integer() == 1, answer.list()
	if answer.broken {
		return Created{}, ErrCorrupt
	}
	there := ownedBy(admission.MerchantID, fields)
	original, err := sessionOf(id, fields)
	if !there || (err == nil && original.Status == session.Pending && !now.Before(original.ExpiresAt)) {
		original, err = s.original(ctx, admission.keyspace(), id)
	}
	if err != nil {
		return Created{}, err
	}
	return Created{Session: original, Replayed: true, Mismatch: !same}, nil
}

// original reads a session whose id is known, and expires it if it is due.
func (s *Store) original(ctx context.Context, space keyspace, id session.ID) (session.Session, error) {
	keys := []string{space.session(id), space.event(outbox.SessionEventID(id, outbox.MarkEnded)), space.queue(), space.due()}
	answer, err := s.run(ctx, originalScript, keys)
	if err != nil {
		return session.Session{}, fmt.Errorf("read the original session: %w", err)
	}
	if answer.text() != wordOK {
		return session.Session{}, ErrCorrupt
	}
	return sessionOf(id, answer.list())
}
