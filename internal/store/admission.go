package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// Admission is who asks, and what this replica's directory knows of the presented key.
type Admission struct {
	// MerchantID is the bare id, without the "mer_" callers see.
	MerchantID string
	// TestMode: with a test key, which has limits, sessions and Idempotency-Keys of its own.
	TestMode bool
	KeyID    string
	// Order is that of the published record this replica knows.
	Order published.Order
	// Digest is of the presented key.
	Digest apikey.Digest
	// Live: the directory accepts Digest, until Until by the clock of Redis; zero: without an end.
	Live  bool
	Until time.Time
	// Inactive: the merchant is not active, so decide about the key and stop.
	Inactive bool
	// Forbidden: the key has no permission for the request, so decide about key and merchant and stop.
	Forbidden bool
	// Limit bounds the merchant's requests.
	Limit ratelimit.Policy

	// currentOnly: a key in its overlap is rejected.
	currentOnly bool
}

// Admitted is what the script says of an admitted request, whatever the operation then found. With
// ErrRateLimited only Quota and Now are set.
type Admitted struct {
	ratelimit.Quota
	// Now is the time of Redis, the clock of every session.
	Now time.Time
	// LastUsedAt is when a key of the ApiKey was last used before this request, to within ten minutes; zero: never. Only Admit reads it.
	LastUsedAt time.Time
}

// Admit decides whether the request is admitted and counts it, and does nothing else. Errors:
// ErrKeyRejected, ErrMerchantNotActive, ErrForbidden, ErrRateLimited, redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) Admit(ctx context.Context, admission Admission) (Admitted, error) {
	call := merchantCall{Call: redis.NewCall(admitScript), readsUse: true}
	admission.keys(&call)
	s.admissionArgs(&call, &admission)
	reply, err := s.runAdmitted(ctx, &call)
	if err != nil {
		return Admitted{}, fmt.Errorf("admit a request: %w", err)
	}
	admitted, _, err := s.parseAdmitted(reply.Text(), &call, &admission)
	return admitted, err
}

// AdmitRotation decides whether the caller may rotate its key, and counts it against a limit of the ApiKey's rotations. Only the current
// key may: Live must say whether the directory has the digest as the current one. Neither a rejected caller nor the merchant's own limit is
// charged. Errors: those of Admit, with ErrRotationLimited for ErrRateLimited.
func (s *Store) AdmitRotation(ctx context.Context, admission Admission, limit ratelimit.Policy) (Admitted, error) {
	admission.Limit, admission.currentOnly = limit, true
	call := merchantCall{Call: redis.NewCall(admitRotationScript)}
	call.Key("rate_key", admission.space(), rotationRateKey, admission.KeyID)
	call.Key("override_key", admission.space(), keystate.OverrideKey, admission.KeyID)
	s.admissionArgs(&call, &admission)
	reply, err := s.runAdmitted(ctx, &call)
	if err != nil {
		return Admitted{}, fmt.Errorf("admit a rotation: %w", err)
	}
	admitted, _, err := s.parseAdmitted(reply.Text(), &call, &admission)
	if errors.Is(err, ErrRateLimited) {
		err = ErrRotationLimited
	}
	return admitted, err
}

// LimitIssue counts a rotation on the internal port, which has a budget of its own: no API key can use it up. Errors:
// ErrRotationLimited, redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) LimitIssue(ctx context.Context, key keystate.Ref, limit ratelimit.Policy) (Admitted, error) {
	call := redis.NewCall(limitIssueScript)
	call.Key("rate_key", redis.BucketKeyspace(session.MerchantBucket(key.MerchantID)), issueRateKey, key.KeyID)
	limitArgs(&call, limit)
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return Admitted{}, fmt.Errorf("limit a rotation: %w", err)
	}
	admitted, _, err := parseAdmitted(reply.Text(), limit)
	if errors.Is(err, ErrRateLimited) {
		err = ErrRotationLimited
	}
	return admitted, err
}

func (a *Admission) space() redis.Keyspace {
	return redis.BucketKeyspace(session.MerchantBucket(a.MerchantID))
}

// owns reports whether the id is of a session of the account.
func (a *Admission) owns(id session.ID) bool {
	return id.MerchantID() == a.MerchantID && id.TestMode() == a.TestMode
}

func (a *Admission) account() string { return session.Account(a.MerchantID, a.TestMode) }

// merchantCall is the call of a merchant's request.
type merchantCall struct {
	redis.Call

	// readsUse: the script returns the last use of the API key. use: it writes that.
	readsUse, use bool
}

// keys writes those of lib/admission.lua; the operation's own follow.
func (a *Admission) keys(call *merchantCall) {
	call.Key("rate_key", a.space(), rateKey, a.account())
	call.Key("override_key", a.space(), keystate.OverrideKey, a.KeyID)
}

// endKeys writes the keys of a session that the script may have to expire or end: its own, those that record the event, and the feed.
func endKeys(call *redis.Call, space redis.Keyspace, id session.ID) {
	call.Key("session_key", space, sessionhash.Key, id.String())
	outbox.WriteKeys(call, space, id, feed.MarkEnded)
	call.Key("feed_key", space, outbox.FeedKey, id.Account())
}

// admissionArgs writes the last key, if the script has to write or read it, and then the arguments of lib/admission.lua; the operation's
// own arguments follow.
func (s *Store) admissionArgs(call *merchantCall, a *Admission) {
	call.use = s.uses.due(a.Digest, time.Now())
	if call.use || call.readsUse {
		call.SkipTo("last_use_key")
		call.Key("last_use_key", a.space(), keystate.LastUseKey, a.KeyID)
	}
	limitArgs(&call.Call, a.Limit)
	call.WriteInt(a.Order.Issued)
	call.WriteString(" ")
	call.WriteInt(a.Order.Revision)
	call.WriteString(" ")
	var room [2 * len(a.Digest)]byte
	hex.Encode(room[:], a.Digest[:])
	call.WriteBytes(room[:])
	ends := a.Live && !a.Until.IsZero()
	if ends {
		call.WriteString(" ")
		call.WriteInt(a.Until.UnixMilli())
	}
	call.End("known_key")
	for _, flag := range [...]struct {
		word string
		set  bool
	}{
		{"unaccepted ", !a.Live}, {"expires ", ends}, {"current_only ", a.currentOnly}, {"inactive ", a.Inactive}, {"forbidden ", a.Forbidden}, {"use ", call.use},
	} {
		if flag.set {
			call.WriteString(flag.word)
		}
	}
	call.End("flags")
}

func limitArgs(call *redis.Call, limit ratelimit.Policy) {
	call.Int("cost", limit.Interval().Microseconds())
	call.Int("burst", limit.Window().Microseconds())
}

// The first word of a reply, where it says more than that the request was admitted.
const (
	wordCreated  = "CREATED"
	wordReplayed = "REPLAYED"
)

// parseAdmitted is that of a merchant's request. Once its key is accepted, the last use of the key is written.
func (s *Store) parseAdmitted(head string, call *merchantCall, a *Admission) (Admitted, string, error) {
	admitted, word, err := parseAdmitted(head, a.Limit)
	if call.use && !errors.Is(err, ErrKeyRejected) && !errors.Is(err, redis.ErrCorrupt) {
		s.uses.markWritten(a.Digest)
	}
	return admitted, word, err
}

// parseAdmitted decodes the head of a reply, and returns its first word. With ErrNotFound and
// ErrIdempotencyMismatch the request was admitted nevertheless.
func parseAdmitted(head string, limit ratelimit.Policy) (Admitted, string, error) {
	word, tail, _ := strings.Cut(head, " ")
	var outcome error
	switch word {
	case "REJECTED":
		return Admitted{}, word, ErrKeyRejected
	case "INACTIVE":
		return Admitted{}, word, ErrMerchantNotActive
	case "FORBIDDEN":
		return Admitted{}, word, ErrForbidden
	case "LIMITED":
		now, ahead, _, ok := parseClock(tail)
		if !ok {
			return Admitted{}, word, redis.ErrCorrupt
		}
		return Admitted{Now: now, Quota: limit.Refused(ahead)}, word, ErrRateLimited
	case "NOT_FOUND":
		outcome = ErrNotFound
	case "MISMATCH":
		outcome = ErrIdempotencyMismatch
	case "OK", wordCreated, wordReplayed:
	default: // "CORRUPT" among them
		return Admitted{}, word, redis.ErrCorrupt
	}
	now, ahead, used, ok := parseClock(tail)
	if !ok {
		return Admitted{}, word, redis.ErrCorrupt
	}
	admitted := Admitted{Now: now, Quota: limit.Admitted(ahead)}
	if used != "" { // asked for by Admit alone
		admitted.LastUsedAt = published.DigestUses(used).Latest()
	}
	return admitted, word, outcome
}

// parseClock reads "<seconds> <microseconds> <theoretical arrival time, in microseconds>[ <last uses>]": the time of Redis, how far the
// theoretical arrival time is ahead, and the rest. Text costs a script less than numbers.
func parseClock(text string) (now time.Time, ahead time.Duration, used string, ok bool) {
	seconds, text, _ := strings.Cut(text, " ")
	micros, text, _ := strings.Cut(text, " ")
	arrival, used, _ := strings.Cut(text, " ")
	s, secondsErr := strconv.ParseInt(seconds, 10, 64)
	us, microsErr := strconv.ParseInt(micros, 10, 64)
	tat, tatErr := strconv.ParseInt(arrival, 10, 64)
	now = time.Unix(s, us*int64(time.Microsecond)).UTC()
	ahead = time.Duration(tat-now.UnixMicro()) * time.Microsecond
	return now, ahead, used, secondsErr == nil && microsErr == nil && tatErr == nil
}
