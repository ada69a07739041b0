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
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// NewSession is a session to be created. Its charge has been validated.
type NewSession struct {
	MerchantName string
	// Currency is the ISO 4217 code of the charge's amounts; empty: session.DefaultCurrency.
	Currency string
	Charge   session.Charge
	// TimeZone is the IANA name of the zone of its receipt.
	TimeZone string
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
func (s *Store) CreateSession(ctx context.Context, asks admission.Request, request NewSession) (admission.Admitted, Created, error) {
	settles := false
	if asks.TestMode {
		var outcome session.TestOutcome
		outcome, settles = session.NewTestOutcome(request.Charge.AmountCents)
		request.Lifetime = cmp.Or(outcome.Lifetime, request.Lifetime)
	}
	id := session.NewID(asks.MerchantID, asks.TestMode)
	call := s.admitter.NewCall(createScript, &asks)
	call.AdmissionKeys()
	s.writeCreate(&call, &asks, &request, id, settles)
	admitted, word, reply, err := run(ctx, &call, "create a session")
	if err != nil {
		return admitted, Created{}, err
	}
	if word != wordReplayed {
		return admitted, Created{Session: newSession(id, &asks, request, admitted.Now)}, nil
	}
	created, err := s.replay(ctx, &reply, asks, admitted.Now)
	return admitted, created, err
}

// writeCreate writes what create.lua takes. settles: the session is one of test mode that is paid without a rail.
func (s *Store) writeCreate(call *admission.Call, asks *admission.Request, request *NewSession, id session.ID, settles bool) {
	space, once := asks.Space(), !request.Idempotency.IsZero()
	var digits [20]byte
	lifetime := string(strconv.AppendInt(digits[:0], request.Lifetime.Milliseconds(), 10))
	call.Key("session_key", space, sessionhash.Key, id.String())
	call.Key("expiry_queue_key", space, expiryQueueKey, lifetime)
	call.Key("expiry_key", space, outbox.ExpiryKey)
	if once {
		call.Key("idempotency_key", space, idempotencyKey, asks.Account(), ":", request.Idempotency.Hash())
	}
	ordered := request.Charge.OrderRef != ""
	if ordered {
		call.SkipTo("order_key")
		call.Key("order_key", space, orderKey, asks.Account(), ":", orderHash(request.Charge.OrderRef))
	}
	if request.EmitCreated {
		call.SkipTo("event_key")
		outbox.WriteKeys(&call.Call, "event_key", space, id, feed.MarkCreated)
	}
	call.AdmissionArgs()
	call.Text("lifetime", lifetime)
	retention := s.retention
	if asks.TestMode {
		retention = testRetention
	}
	call.Millis("keep", request.Lifetime+retention)
	record := session.Record{
		MerchantID: asks.MerchantID, TestMode: asks.TestMode, MerchantName: request.MerchantName, KeyID: asks.KeyID, Currency: request.Currency,
		LifetimeMillis: request.Lifetime.Milliseconds(), Charge: request.Charge,
	}
	var room [128]byte // enough for most
	call.WriteBytes(record.Append(room[:0]))
	call.End("record")
	email := ""
	if s.receipts && !asks.TestMode { // nothing else needs it
		email = request.Charge.CustomerEmail
	}
	if email != "" {
		email = session.EscapeTab(email) + "\t" + request.TimeZone
	}
	if once || ordered || settles || request.EmitCreated || email != "" {
		call.Flag("emit_created", request.EmitCreated)
		call.Text("email", email)
		call.Flag("ordered", ordered)
	}
	if settles {
		call.Millis("settle_after", session.TestOutcomeDelay)
	} else if once {
		call.Text("settle_after", "")
	}
	if once {
		call.Millis("idempotency_keep", max(request.Lifetime, idempotencyRetention))
		call.Text("fingerprint", request.Charge.Fingerprint())
		call.Flag("reject_mismatch", request.RejectMismatch)
	}
}

// newSession is the session create.lua has just written.
func newSession(id session.ID, asks *admission.Request, request NewSession, now time.Time) session.Session {
	createdAt := now.Truncate(time.Millisecond)
	return session.Session{
		ID:           id,
		MerchantID:   asks.MerchantID,
		MerchantName: request.MerchantName,
		KeyID:        asks.KeyID,
		Status:       session.Pending,
		Currency:     cmp.Or(request.Currency, session.DefaultCurrency),
		Charge:       request.Charge,
		CreatedAt:    createdAt,
		ExpiresAt:    createdAt.Add(request.Lifetime.Truncate(time.Millisecond)),
	}
}

// replay reads the original. The script that found it could not declare its key, so what it may not write is left to a second one:
// that an original is gone, or expires.
func (s *Store) replay(ctx context.Context, reply *redis.Reply, asks admission.Request, now time.Time) (Created, error) {
	space := asks.Space()
	id, err := session.ParseID(strings.TrimPrefix(reply.Text(), space.Key(sessionhash.Key)))
	if err != nil {
		return Created{}, redis.ErrCorrupt
	}
	same, fields := reply.Int() == 1, reply.List()
	if err := reply.Err(); err != nil {
		return Created{}, err
	}
	exists := sessionhash.Found(&fields)
	original, err := sessionhash.Parse(id, &fields)
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
	call := redis.NewCall(readOriginalScript)
	endKeys(&call, space, id)
	call.Text("history", s.historyArg)
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return session.Session{}, fmt.Errorf("read the original session: %w", err)
	}
	reply.RequireOK()
	fields := reply.List()
	if err := reply.Err(); err != nil {
		return session.Session{}, err
	}
	return sessionhash.Parse(id, &fields)
}
