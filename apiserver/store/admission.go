package store

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/apiserver/ratelimit"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// Admission is who asks, and what this replica's directory knows of the presented key.
type Admission struct {
	// MerchantID is the bare id, without the "mer_" callers see.
	MerchantID string
	KeyID      string
	// Revision is of the published record this replica knows.
	Revision int64
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
	// LastUsedAt is when the key was last used before this request, to within a minute; zero: never.
	LastUsedAt time.Time
}

// Admit decides whether the request is admitted and counts it, and does nothing else. Errors:
// ErrKeyRejected, ErrMerchantBlocked, ErrRateLimited, ErrCorrupt, ErrUnavailable.
func (s *Store) Admit(ctx context.Context, admission Admission) (Admitted, error) {
	answer, err := s.run(ctx, admitScript, admission.keys(), admission.args()...)
	if err != nil {
		return Admitted{}, fmt.Errorf("admit a request: %w", err)
	}
	admitted, _, err := admittedOf(answer, admission.Limit)
	return admitted, err
}

func (a Admission) keyspace() keyspace { return keyspaceOf(session.BucketOf(a.MerchantID)) }

// keys and args are those of limiter.lua and admission.lua; the operation's own follow.
func (a Admission) keys() []string {
	space := a.keyspace()
	return append(make([]string, 0, 5), space.rate(a.MerchantID), space.override(a.KeyID), space.used(a.KeyID))
}

func (a Admission) args() []any {
	return append(limitArgs(a.Limit), a.Revision, a.Digest.Hex(), flag(a.Live), flag(a.Blocked))
}

func limitArgs(limit ratelimit.Policy) []any {
	return append(make([]any, 0, 26), limit.Interval().Microseconds(), limit.Window().Microseconds())
}

// The first word of an answer, where it says more than that the request was admitted.
const (
	wordOK       = "OK"
	wordCreated  = "CREATED"
	wordReplayed = "REPLAYED"
)

// admittedOf reads what every answer begins with, and returns its first word. With ErrNotFound and
// ErrIdempotencyMismatch the request was admitted nevertheless.
func admittedOf(answer *reply, limit ratelimit.Policy) (Admitted, string, error) {
	word := answer.text()
	var verdict error
	switch word {
	case "REJECTED":
		return Admitted{}, word, ErrKeyRejected
	case "BLOCKED":
		return Admitted{}, word, ErrMerchantBlocked
	case "LIMITED":
		admitted := Admitted{Now: answer.microTime(), Quota: limit.Refused(answer.micros())}
		if answer.broken {
			return Admitted{}, word, ErrCorrupt
		}
		return admitted, word, ErrRateLimited
	case "NOT_FOUND":
		verdict = ErrNotFound
	case "MISMATCH":
		verdict = ErrIdempotencyMismatch
	case wordOK, wordCreated, wordReplayed:
	default: // "CORRUPT" among them
		return Admitted{}, word, ErrCorrupt
	}
	admitted := Admitted{Now: answer.microTime(), Quota: limit.Admitted(answer.micros())}
	if used := answer.integer(); used > 0 {
		admitted.LastUsedAt = time.UnixMilli(used).UTC()
	}
	if answer.broken {
		return Admitted{}, word, ErrCorrupt
	}
	return admitted, word, verdict
}
