// Package admission decides whether a request is admitted, by key, merchant and limit, and counts it, in the script that then does the request's
// work. Package store has the scripts of most requests: they include the part "admission".
package admission

import (
	"cmp"
	"context"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// Each error says what the caller gets to know. None of them ever holds a key or a digest.
var (
	// ErrKeyRejected says that the presented API key is not, or no longer, accepted.
	ErrKeyRejected = errors.New("the API key is not accepted")
	// ErrMerchantNotActive says that key or session are good, but their merchant is not active.
	ErrMerchantNotActive = errors.New("the merchant is not active")
	// ErrForbidden says that key and merchant are good, but the key has no permission for the request.
	ErrForbidden = errors.New("the API key has no permission for the request")
	// ErrRateLimited says that the caller is over its limit; the Quota is filled.
	ErrRateLimited = errors.New("over the rate limit")
	// ErrRotationLimited is an ErrRateLimited about the rotations of one ApiKey.
	ErrRotationLimited = fmt.Errorf("%w: rotations of an API key", ErrRateLimited)
)

// The kinds of keys.
const (
	// RateKey + caller holds the caller's theoretical arrival time (GCRA), in microseconds.
	RateKey = "rate:"
	// rotationRateKey + key id holds the same of the rotations of one ApiKey by its key, and issueRateKey of those on the internal port.
	rotationRateKey = "rate:rotations:"
	issueRateKey    = "rate:issues:"
)

// maxDebt is how much longer than for their limit a merchant's requests wait at most after a long read: see lib/surcharge.
const maxDebt = time.Second

//go:embed *.lua lib/*.lua
var files embed.FS

// Parts are the parts of the scripts here and in package store, by their names; see redis.NewScript.
var Parts = redis.Parts{
	"clock":     redis.Clock,
	"admission": redis.Part(files, "lib/admission"),
	"surcharge": redis.Part(files, "lib/surcharge"),
}

// Constants are the constants of Parts.
var Constants = redis.Constants{"const": {
	"MAX_DEBT_US":      redis.LuaInt(maxDebt.Microseconds()),
	"MAX_DIGEST_USES":  redis.LuaInt(published.MaxDigestUses),
	"USE_RETENTION_MS": redis.LuaInt(useRetention.Milliseconds()),
}}

var (
	admitScript         = script("admit")
	admitRotationScript = script("admit_rotation")
	limitIssueScript    = script("limit_issue")
)

func script(operation string) *redis.Script {
	return redis.NewScript(operation, redis.Part(files, operation), Parts, Constants)
}

// Admitter admits requests. It is safe for concurrent use.
type Admitter struct {
	redis *redis.Client
	uses  *lastUses
}

// New returns what admits requests to a Redis. lastUseStep is how often the last use of each digest is written, at most, by each replica; zero:
// published.LastUseStep.
func New(client *redis.Client, lastUseStep time.Duration) *Admitter {
	return &Admitter{client, newLastUses(cmp.Or(lastUseStep, published.LastUseStep))}
}

// Request is who asks, and what this replica's directory knows of the presented key.
type Request struct {
	// MerchantID is the bare id, without the "mer_" callers see.
	MerchantID string
	// TestMode: with a test key, which has limits, sessions and Idempotency-Keys of its own.
	TestMode bool
	KeyID    string
	// Order is the order of the published record that this replica knows.
	Order published.Order
	// Digest is of the presented key.
	Digest apikey.Digest
	// Accepted: the directory accepts Digest, until Until by the clock of Redis; zero: without an end.
	Accepted bool
	Until    time.Time
	// Inactive: the merchant is not active, so decide about the key and stop.
	Inactive bool
	// Forbidden: the key has no permission for the request, so decide about key and merchant and stop.
	Forbidden bool
	// Limit bounds the merchant's requests.
	Limit ratelimit.Policy
	// Counted: an earlier script has counted the request.
	Counted bool

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
func (a *Admitter) Admit(ctx context.Context, request Request) (Admitted, error) {
	call := a.NewCall(admitScript, &request)
	call.readsUse = true
	call.AdmissionKeys()
	call.AdmissionArgs()
	admitted, _, _, err := call.Run(ctx, "admit a request")
	return admitted, err
}

// AdmitRotation decides whether the caller may rotate its key, and counts it against a limit of the ApiKey's rotations. Only the current
// key may: Live must say whether the directory has the digest as the current one. Neither a rejected caller nor the merchant's own limit is
// charged. It returns the same errors as Admit, with ErrRotationLimited for ErrRateLimited.
func (a *Admitter) AdmitRotation(ctx context.Context, request Request, limit ratelimit.Policy) (Admitted, error) {
	request.Limit, request.currentOnly = limit, true
	call := a.NewCall(admitRotationScript, &request)
	call.Key("rate_key", request.Space(), rotationRateKey, request.KeyID)
	call.Key("override_key", request.Space(), keystate.OverrideKey, request.KeyID)
	call.AdmissionArgs()
	admitted, _, _, err := call.Run(ctx, "admit a rotation")
	return admitted, rotationError(err)
}

// LimitIssue counts a rotation on the internal port, which has a budget of its own: no API key can use it up. Errors:
// ErrRotationLimited, redis.ErrCorrupt, redis.ErrUnavailable.
func (a *Admitter) LimitIssue(ctx context.Context, key keystate.Ref, limit ratelimit.Policy) (Admitted, error) {
	call := redis.NewCall(limitIssueScript)
	call.Key("rate_key", redis.BucketKeyspace(session.MerchantBucket(key.MerchantID)), issueRateKey, key.KeyID)
	WriteLimit(&call, limit)
	reply, err := a.redis.Run(ctx, &call)
	if err != nil {
		return Admitted{}, fmt.Errorf("limit a rotation: %w", err)
	}
	admitted, _, err := Parse(reply.Text(), limit)
	return admitted, rotationError(err)
}

func rotationError(err error) error {
	if errors.Is(err, ErrRateLimited) {
		return ErrRotationLimited
	}
	return err
}

// Space is the keyspace of the merchant's bucket.
func (r *Request) Space() redis.Keyspace {
	return redis.BucketKeyspace(session.MerchantBucket(r.MerchantID))
}

// Owns reports whether the id is of a session of the account.
func (r *Request) Owns(id session.ID) bool {
	return id.MerchantID() == r.MerchantID && id.TestMode() == r.TestMode
}

// Account is the merchant's account in the mode of its key.
func (r *Request) Account() string { return session.Account(r.MerchantID, r.TestMode) }

// Call is the call of a merchant's request, by a script that includes the part "admission". It writes AdmissionKeys first and the operation's own
// keys behind them, then AdmissionArgs and the operation's own arguments.
type Call struct {
	redis.Call

	admitter *Admitter
	request  *Request
	// readsUse: the script returns the last use of the API key. use: it writes that.
	readsUse, use bool
}

// NewCall returns a call without keys and arguments.
func (a *Admitter) NewCall(script *redis.Script, request *Request) Call {
	return Call{Call: redis.NewCall(script), admitter: a, request: request}
}

// AdmissionKeys writes the first keys of lib/admission.lua.
func (c *Call) AdmissionKeys() {
	c.Key("rate_key", c.request.Space(), RateKey, c.request.Account())
	c.Key("override_key", c.request.Space(), keystate.OverrideKey, c.request.KeyID)
}

// AdmissionArgs writes the last key of lib/admission.lua, if the script has to write or read it, and then its arguments.
func (c *Call) AdmissionArgs() {
	r := c.request
	c.use = c.admitter.UseDue(r.Digest)
	if c.use || c.readsUse {
		c.SkipTo("last_use_key")
		c.Key("last_use_key", r.Space(), keystate.LastUseKey, r.KeyID)
	}
	if r.Counted {
		c.Int("cost", 0)
		c.Int("burst", r.Limit.Window().Microseconds())
	} else {
		WriteLimit(&c.Call, r.Limit)
	}
	c.WriteInt(r.Order.Issued)
	c.WriteString(" ")
	c.WriteInt(r.Order.Revision)
	c.WriteString(" ")
	var room [2 * len(r.Digest)]byte
	hex.Encode(room[:], r.Digest[:])
	c.WriteBytes(room[:])
	ends := r.Accepted && !r.Until.IsZero()
	if ends {
		c.WriteString(" ")
		c.WriteInt(r.Until.UnixMilli())
	}
	c.End("known_key")
	for _, flag := range [...]struct {
		word string
		set  bool
	}{
		{"unaccepted ", !r.Accepted}, {"expires ", ends}, {"current_only ", r.currentOnly}, {"inactive ", r.Inactive}, {"forbidden ", r.Forbidden}, {"use ", c.use},
	} {
		if flag.set {
			c.WriteString(flag.word)
		}
	}
	c.End("flags")
}

// WriteLimit writes the arguments cost and burst of lib/admission.lua.
func WriteLimit(call *redis.Call, limit ratelimit.Policy) {
	call.Int("cost", limit.Interval().Microseconds())
	call.Int("burst", limit.Window().Microseconds())
}

// Run runs the script of a merchant's request. It returns the first word of its reply, which says what became of an admitted request, and the rest.
// It returns the same errors as Admit; their text begins with what.
func (c *Call) Run(ctx context.Context, what string) (Admitted, string, redis.Reply, error) {
	return c.run(ctx, what, c.admitter.redis.Run)
}

// RunReplicated is Run, and also waits for replicas, as that of redis.Client does.
func (c *Call) RunReplicated(ctx context.Context, what string) (Admitted, string, redis.Reply, error) {
	return c.run(ctx, what, c.admitter.redis.RunReplicated)
}

func (c *Call) run(
	ctx context.Context, what string, run func(context.Context, *redis.Call) (redis.Reply, error),
) (Admitted, string, redis.Reply, error) {
	reply, err := run(ctx, &c.Call)
	if err != nil {
		// A Redis that was away may have lost the last writes, in a failover for example, so all uses are written again.
		if ctx.Err() == nil && errors.Is(err, redis.ErrUnavailable) {
			c.admitter.uses.forget()
		}
		return Admitted{}, "", redis.Reply{}, fmt.Errorf("%s: %w", what, err)
	}
	admitted, word, err := Parse(reply.Text(), c.request.Limit)
	if c.use && !errors.Is(err, ErrKeyRejected) && !errors.Is(err, redis.ErrCorrupt) {
		c.admitter.uses.markWritten(c.request.Digest) // once the key is accepted, its last use is written
	}
	return admitted, word, reply, err
}

// Parse decodes the first line of a reply, "<word><quota>", and returns the word, which is the script's own if the request was admitted.
func Parse(head string, limit ratelimit.Policy) (Admitted, string, error) {
	word, tail, _ := strings.Cut(head, " ")
	switch word {
	case "REJECTED":
		return Admitted{}, word, ErrKeyRejected
	case "INACTIVE":
		return Admitted{}, word, ErrMerchantNotActive
	case "FORBIDDEN":
		return Admitted{}, word, ErrForbidden
	case "CORRUPT":
		return Admitted{}, word, redis.ErrCorrupt
	}
	now, ahead, used, ok := ParseClock(tail)
	switch {
	case !ok:
		return Admitted{}, word, redis.ErrCorrupt
	case word == "LIMITED":
		return Admitted{Now: now, Quota: limit.Refused(ahead)}, word, ErrRateLimited
	}
	admitted := Admitted{Now: now, Quota: limit.Admitted(ahead)}
	if used != "" { // asked for by Admit alone
		admitted.LastUsedAt = published.DigestUses(used).Latest()
	}
	return admitted, word, nil
}

// ParseClock reads "<seconds> <microseconds> <theoretical arrival time, in microseconds>[ <last uses>]": the time of Redis, how far the
// theoretical arrival time is ahead, and the rest. Text costs a script less than numbers.
func ParseClock(text string) (now time.Time, ahead time.Duration, used string, ok bool) {
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
