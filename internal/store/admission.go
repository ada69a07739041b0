package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Admission is who asks, and what this replica's directory knows of the presented key.
type Admission struct {
	// MerchantID is the bare id, without the "mer_" callers see.
	MerchantID string
	KeyID      string
	// Order is that of the published record this replica knows.
	Order published.Order
	// Digest is of the presented key.
	Digest apikey.Digest
	// Live is the directory's own verdict on Digest.
	Live bool
	// Blocked: the merchant is not active, so decide about the key and stop.
	Blocked bool
	// Limit bounds the merchant's requests.
	Limit ratelimit.Policy
}

// Admitted is what the script says of an admitted request, whatever the operation then found. With
// ErrRateLimited only Quota and Now are set.
type Admitted struct {
	ratelimit.Quota
	// Now is the time of Redis, the clock of every session.
	Now time.Time
	// LastUsedAt is when the key was last used before this request, to within a minute; zero: never. Only Admit tells it.
	LastUsedAt time.Time
}

// Admit decides whether the request is admitted and counts it, and does nothing else. Errors:
// ErrKeyRejected, ErrMerchantBlocked, ErrRateLimited, ErrCorrupt, ErrUnavailable.
func (s *Store) Admit(ctx context.Context, admission Admission) (Admitted, error) {
	var call words
	admission.keys(&call)
	call.key(admission.keyspace(), usedKind, admission.KeyID)
	s.admissionArgs(&call, &admission)
	answer, err := s.runWords(ctx, admitScript, &call)
	if err != nil {
		return Admitted{}, fmt.Errorf("admit a request: %w", err)
	}
	admitted, _, err := s.admittedOf(answer, &call, &admission)
	return admitted, err
}

// AdmitRotation is Admit for a rotation of the key, of which limit bounds how many there are of one ApiKey. With
// ErrRotationLimited the Quota is that of the rotations.
func (s *Store) AdmitRotation(ctx context.Context, admission Admission, limit ratelimit.Policy) (Admitted, error) {
	var call words
	admission.keys(&call)
	call.key(admission.keyspace(), rotationsKind, admission.KeyID)
	s.admissionArgs(&call, &admission)
	limitArgs(&call, limit)
	answer, err := s.runWords(ctx, admitRotationScript, &call)
	if err != nil {
		return Admitted{}, fmt.Errorf("admit a rotation: %w", err)
	}
	text := answer.text()
	if tail, limited := strings.CutPrefix(text, "ROTATION_LIMITED "); limited {
		now, backlog, _, ok := momentOf(tail)
		if !ok {
			return Admitted{}, ErrCorrupt
		}
		return Admitted{Now: now, Quota: limit.Refused(backlog)}, ErrRotationLimited
	}
	admitted, _, err := s.admittedOf(replyOf(text), &call, &admission)
	return admitted, err
}

func (a *Admission) keyspace() keyspace { return keyspaceOf(session.BucketOf(a.MerchantID)) }

// keys writes those of limiter.lua and admission.lua; the operation's own follow.
func (a *Admission) keys(call *words) {
	space := a.keyspace()
	call.key(space, rateKind, a.MerchantID)
	call.key(space, overrideKind, a.KeyID)
}

// admissionArgs writes the last key, if there is one more, and then the arguments of limiter.lua and admission.lua; the operation's
// own arguments follow.
func (s *Store) admissionArgs(call *words, a *Admission) {
	if call.use = s.uses.due(a.KeyID, time.Now()); call.use {
		call.key(a.keyspace(), usedKind, a.KeyID)
	}
	limitArgs(call, a.Limit)
	call.claim(a.Order, a.Digest)
	if !a.Live {
		call.text.WriteByte('D')
	}
	if a.Blocked {
		call.text.WriteByte('B')
	}
	if call.use {
		call.text.WriteByte('U')
	}
	call.end()
}

func limitArgs(call *words, limit ratelimit.Policy) {
	call.integer(limit.Interval().Microseconds())
	call.integer(limit.Window().Microseconds())
}

// The first word of an answer, where it says more than that the request was admitted.
const (
	wordOK       = "OK"
	wordCreated  = "CREATED"
	wordReplayed = "REPLAYED"
)

// admittedOf is that of a merchant's request. Once it is admitted, the last use of the key is written.
func (s *Store) admittedOf(answer *reply, call *words, a *Admission) (Admitted, string, error) {
	admitted, word, err := admittedOf(answer, a.Limit)
	if call.use && !admitted.Now.IsZero() && !errors.Is(err, ErrRateLimited) {
		s.uses.wrote(a.KeyID)
	}
	return admitted, word, err
}

// admittedOf reads what every answer begins with, and returns its first word. With ErrNotFound and
// ErrIdempotencyMismatch the request was admitted nevertheless.
func admittedOf(answer *reply, limit ratelimit.Policy) (Admitted, string, error) {
	word, tail, _ := strings.Cut(answer.text(), " ")
	var verdict error
	switch word {
	case "REJECTED":
		return Admitted{}, word, ErrKeyRejected
	case "BLOCKED":
		return Admitted{}, word, ErrMerchantBlocked
	case "LIMITED":
		now, backlog, _, ok := momentOf(tail)
		if !ok {
			return Admitted{}, word, ErrCorrupt
		}
		return Admitted{Now: now, Quota: limit.Refused(backlog)}, word, ErrRateLimited
	case "NOT_FOUND":
		verdict = ErrNotFound
	case "MISMATCH":
		verdict = ErrIdempotencyMismatch
	case wordOK, wordCreated, wordReplayed:
	default: // "CORRUPT" among them
		return Admitted{}, word, ErrCorrupt
	}
	now, backlog, used, ok := momentOf(tail)
	if !ok {
		return Admitted{}, word, ErrCorrupt
	}
	admitted := Admitted{Now: now, Quota: limit.Admitted(backlog)}
	if used, err := strconv.ParseInt(used, 10, 64); err == nil && used > 0 {
		admitted.LastUsedAt = time.UnixMilli(used).UTC()
	}
	return admitted, word, verdict
}

// momentOf reads "<seconds> <microseconds> <the moment by which all requests are paid for, in microseconds>[ <last use>]":
// the time of Redis, how far that moment lies ahead, and the rest. Text costs a script less than numbers.
func momentOf(text string) (now time.Time, backlog time.Duration, used string, ok bool) {
	seconds, text, _ := strings.Cut(text, " ")
	micros, text, _ := strings.Cut(text, " ")
	paid, used, _ := strings.Cut(text, " ")
	s, secondsErr := strconv.ParseInt(seconds, 10, 64)
	us, microsErr := strconv.ParseInt(micros, 10, 64)
	debt, debtErr := strconv.ParseInt(paid, 10, 64)
	now = time.Unix(s, us*int64(time.Microsecond)).UTC()
	backlog = time.Duration(debt-now.UnixMicro()) * time.Microsecond
	return now, backlog, used, secondsErr == nil && microsErr == nil && debtErr == nil
}
