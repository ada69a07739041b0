package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// Session reads a session of the asking merchant without the customer's address, expiring it first if it is due. Errors are those
// of Admit and ErrNotFound, which also stands for another merchant's session and for the zero ID.
func (s *Store) Session(ctx context.Context, asks admission.Request, id session.ID) (admission.Admitted, session.Session, error) {
	admitted, story, err := s.Story(ctx, asks, id)
	return admitted, story.Session, err
}

// fieldsPerRequest is how many fields of a session with refused payments or refunds a merchant
// reads for the price of a request. That many cost Redis 20 to 40 µs, as much as one or two new
// sessions. Most sessions have no more.
const fieldsPerRequest = 20

// Story is Session with the payments that were refused or refunded, of which each fieldsPerRequest are charged as a request more.
func (s *Store) Story(ctx context.Context, asks admission.Request, id session.ID) (admission.Admitted, session.Story, error) {
	if !asks.Owns(id) {
		admitted, _, err := s.admitForeign(ctx, asks)
		return admitted, session.Story{}, err
	}
	call := s.admitter.NewCall(readScript, &asks)
	call.AdmissionKeys()
	endKeys(&call.Call, asks.Space(), id)
	call.AdmissionArgs()
	call.Text("history", s.historyArg)
	admitted, _, reply, err := run(ctx, &call, "read a session")
	if err != nil {
		return admitted, session.Story{}, err
	}
	fields, listed := reply.List(), redis.Reply{}
	if !sessionhash.Found(&fields) {
		return admitted, session.Story{}, ErrNotFound
	}
	if reply.More() {
		listed = reply.List()
	}
	story, err := parseStory(id, &fields, &listed)
	return admitted, story, err
}

// admitForeign answers a request for a session that the id says is another account's: as one that does not exist.
func (s *Store) admitForeign(ctx context.Context, asks admission.Request) (admission.Admitted, session.Session, error) {
	admitted, err := s.admitter.Admit(ctx, asks)
	if err == nil {
		err = ErrNotFound
	}
	return admitted, session.Session{}, err
}

// PublicAdmission is who asks without a key.
type PublicAdmission struct {
	// Subject is what the limit counts, such as ip:203.0.113.7. It must not have the form of a merchant id.
	Subject string
	// Limit bounds the subject's requests in each bucket and each mode.
	Limit ratelimit.Policy
}

// PublicSession is what anyone who has the session id may see.
type PublicSession struct {
	// MerchantID is without "mer_".
	MerchantID   string
	TestMode     bool
	MerchantName string
	AmountCents  int64
	// TaxCents and TipCents are 0 if they were not given.
	TaxCents, TipCents int64
	// OrderRef is for payers only if their merchant says so.
	OrderRef string
	// Description and ReturnURL are those of the charge.
	Description, ReturnURL string
	// Currency is an ISO 4217 code.
	Currency  string
	Status    session.Status
	ExpiresAt time.Time
	// EndedAt is zero while the session is pending.
	EndedAt time.Time
	// RefundedCents is how much of the payment that completed the session was refunded.
	RefundedCents int64
	// Refused: the session has refused payments, which ReadStory has.
	Refused bool
	// ExpiresIn is the time left to pay on the clock of Redis; 0 unless the session is pending.
	ExpiresIn time.Duration
}

// PublicSession reads what a payer may see of a session, expiring it first if it is due. Errors:
// admission.ErrRateLimited, ErrNotFound (also for the zero ID), redis.ErrCorrupt, redis.ErrUnavailable. The quota is
// filled unless the error is one of the last two.
func (s *Store) PublicSession(
	ctx context.Context, payer PublicAdmission, id session.ID,
) (ratelimit.Quota, PublicSession, error) {
	space := redis.BucketKeyspace(id.Bucket())
	call := redis.NewCall(publicReadScript)
	call.Key("rate_key", space, admission.RateKey, session.Account(payer.Subject, id.TestMode()))
	endKeys(&call, space, id)
	admission.WriteLimit(&call, payer.Limit)
	call.Text("history", s.historyArg)
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return ratelimit.Quota{}, PublicSession{}, fmt.Errorf("read a session publicly: %w", err)
	}
	admitted, word, err := admission.Parse(reply.Text(), payer.Limit)
	if err == nil {
		err = wordError(word)
	}
	if err != nil {
		return admitted.Quota, PublicSession{}, err
	}
	read, err := parsePublicSession(&reply, id, admitted.Now)
	if err != nil {
		return ratelimit.Quota{}, PublicSession{}, err
	}
	return admitted.Quota, read, nil
}

// WatchedSession is PublicSession without a limit: for a replica that watches a session itself. Errors: ErrNotFound,
// redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) WatchedSession(ctx context.Context, id session.ID) (PublicSession, error) {
	call := redis.NewCall(watchedReadScript)
	endKeys(&call, redis.BucketKeyspace(id.Bucket()), id)
	call.Text("history", s.historyArg)
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return PublicSession{}, fmt.Errorf("read a watched session: %w", err)
	}
	word, tail, _ := strings.Cut(reply.Text(), " ")
	if word == "NOT_FOUND" {
		return PublicSession{}, ErrNotFound
	}
	now, _, _, ok := admission.ParseClock(tail)
	reply.Require(ok)
	return parsePublicSession(&reply, id, now)
}

func parsePublicSession(reply *redis.Reply, id session.ID, now time.Time) (PublicSession, error) {
	read := PublicSession{Status: sessionhash.ParseStatus(reply), ExpiresAt: reply.Millis()}
	record, ok := session.ParseRecord(reply.Text())
	read.EndedAt = reply.OptionalMillis()
	refused := reply.OptionalText() // field LISTED, which may be there for something else
	read.Refused = refused != "" && refused != "0"
	if reply.More() {
		read.RefundedCents = reply.Int()
	}
	if reply.Err() != nil || !ok || read.Status.Final() == read.EndedAt.IsZero() || record.MerchantID != id.MerchantID() || record.TestMode != id.TestMode() {
		return PublicSession{}, redis.ErrCorrupt
	}
	read.MerchantID, read.TestMode, read.MerchantName = record.MerchantID, record.TestMode, record.MerchantName
	read.AmountCents, read.Currency, read.OrderRef = record.AmountCents, record.Currency, record.OrderRef
	read.Description, read.ReturnURL = record.Description, record.ReturnURL
	if record.TaxCents != nil {
		read.TaxCents = *record.TaxCents
	}
	if record.TipCents != nil {
		read.TipCents = *record.TipCents
	}
	if read.Status == session.Pending {
		read.ExpiresIn = read.ExpiresAt.Sub(now)
	}
	return read, nil
}
