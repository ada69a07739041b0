package store

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// NewSession is a session to be created. Its charge has been validated.
type NewSession struct {
	MerchantName string
	// Currency is the ISO 4217 code of the charge's amounts; empty: session.DefaultCurrency.
	Currency string
	Charge   session.Charge
	// Lifetime is from creation to expiry, to the millisecond.
	Lifetime time.Duration
	// Idempotency is the caller's Idempotency-Key; zero: none.
	Idempotency session.IdempotencyKey
	// RejectMismatch asks for ErrIdempotencyMismatch when the key was used with another charge;
	// else the original session is returned.
	RejectMismatch bool
	// EmitCreated: record session.created.
	EmitCreated bool
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
	script := createScript
	if admission.TestMode {
		if outcome, acts := session.TestOutcomeOf(wanted.Charge.AmountCents); acts {
			script, wanted.Lifetime = createActingScript, cmp.Or(outcome.Lifetime, wanted.Lifetime)
		}
	}
	id := session.NewID(admission.MerchantID, admission.TestMode)
	var call merchantCall
	s.createCall(&call, &admission, &wanted, id)
	reply, err := s.redis.RunCall(ctx, script, &call.Call)
	if err != nil {
		return Admitted{}, Created{}, fmt.Errorf("create a session: %w", err)
	}
	admitted, word, err := s.admittedOf(reply.Text(), &call, &admission)
	if err != nil {
		return admitted, Created{}, err
	}
	if word != wordReplayed {
		return admitted, Created{Session: newSession(id, &admission, wanted, admitted.Now)}, nil
	}
	created, err := s.replayOf(ctx, &reply, admission, admitted.Now)
	return admitted, created, err
}

// createCall writes what create.lua takes.
func (s *Store) createCall(call *merchantCall, admission *Admission, wanted *NewSession, id session.ID) {
	space, once := admission.space(), !wanted.Idempotency.IsZero()
	var digits [20]byte
	lifetime := string(strconv.AppendInt(digits[:0], wanted.Lifetime.Milliseconds(), 10))
	admission.keys(call)
	call.Key(space, sessionKey, id.String())
	call.Key(space, expiryQueueKey, lifetime)
	call.Key(space, outbox.ExpiryKey)
	if once {
		call.Key(space, idempotencyKey, admission.account(), ":", wanted.Idempotency.Hash())
	}
	ordered := wanted.Charge.OrderRef != ""
	if ordered {
		call.Key(space, orderKey, admission.account(), ":", orderHash(wanted.Charge.OrderRef))
	}
	if wanted.EmitCreated {
		outbox.WriteKeys(&call.Call, space, id, feed.MarkCreated)
	}
	s.admissionArgs(call, admission)
	call.Text(lifetime)
	retention := s.retention
	if admission.TestMode {
		retention = testRetention
	}
	call.Int((wanted.Lifetime + retention).Milliseconds())
	record := session.Record{
		MerchantID: admission.MerchantID, TestMode: admission.TestMode, MerchantName: wanted.MerchantName, KeyID: admission.KeyID, Currency: wanted.Currency,
		LifetimeMillis: wanted.Lifetime.Milliseconds(), Charge: wanted.Charge,
	}
	var room [128]byte // enough for most
	call.WriteBytes(record.Append(room[:0]))
	call.End()
	if once || ordered || wanted.EmitCreated || wanted.Charge.CustomerEmail != "" {
		call.Flag(wanted.EmitCreated)
		call.Text(wanted.Charge.CustomerEmail)
		call.Flag(ordered)
	}
	if once {
		call.Int(max(wanted.Lifetime, idempotencyRetention).Milliseconds())
		call.Text(wanted.Charge.Fingerprint())
		call.Flag(wanted.RejectMismatch)
	}
}

// newSession is the session create.lua has just written.
func newSession(id session.ID, admission *Admission, wanted NewSession, now time.Time) session.Session {
	createdAt := now.Truncate(time.Millisecond)
	return session.Session{
		ID:           id,
		MerchantID:   admission.MerchantID,
		MerchantName: wanted.MerchantName,
		KeyID:        admission.KeyID,
		Status:       session.Pending,
		Currency:     cmp.Or(wanted.Currency, session.DefaultCurrency),
		Charge:       wanted.Charge,
		CreatedAt:    createdAt,
		ExpiresAt:    createdAt.Add(wanted.Lifetime.Truncate(time.Millisecond)),
	}
}

// replayOf reads the original. The script that found it could not declare its key, so what it may not write is left to a second one:
// that an original is gone, or expires.
func (s *Store) replayOf(ctx context.Context, reply *redis.Reply, admission Admission, now time.Time) (Created, error) {
	space := admission.space()
	id, err := session.ParseID(strings.TrimPrefix(reply.Text(), space.Key(sessionKey)))
	if err != nil {
		return Created{}, redis.ErrCorrupt
	}
	same, fields := reply.Int() == 1, reply.List()
	if err := reply.Err(); err != nil {
		return Created{}, err
	}
	exists := found(&fields)
	original, err := sessionOf(id, &fields)
	if !exists || (err == nil && original.Status == session.Pending && !now.Before(original.ExpiresAt)) {
		original, err = s.original(ctx, space, id)
	}
	if err != nil {
		return Created{}, err
	}
	return Created{Session: original, Replayed: true, Mismatch: !same}, nil
}

// original reads a session whose id is known, and expires it if it is due.
func (s *Store) original(ctx context.Context, space redis.Keyspace, id session.ID) (session.Session, error) {
	var call redis.Call
	endKeys(&call, space, id)
	call.Text(s.trimming)
	reply, err := s.redis.RunCall(ctx, readOriginalScript, &call)
	if err != nil {
		return session.Session{}, fmt.Errorf("read the original session: %w", err)
	}
	reply.OK()
	fields := reply.List()
	if err := reply.Err(); err != nil {
		return session.Session{}, err
	}
	return sessionOf(id, &fields)
}
