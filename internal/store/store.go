// Package store keeps sessions, rate limits and key overrides in Redis. Each request is one Lua script, so that it is
// one round trip and all or nothing. Events are recorded by the same scripts, with parts of package outbox.
package store

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// Each error says what the caller gets to know. Beside these there are redis.ErrCorrupt and redis.ErrUnavailable. None of them
// ever holds a key, a digest or an e-mail address.
var (
	// ErrKeyRejected says that the presented API key is not, or no longer, accepted.
	ErrKeyRejected = errors.New("the API key is not accepted")
	// ErrMerchantBlocked says that the key is good, but its merchant is not active.
	ErrMerchantBlocked = errors.New("the merchant is not active")
	// ErrRateLimited says that the caller is over its limit; the Quota is filled.
	ErrRateLimited = errors.New("over the rate limit")
	// ErrRotationLimited is an ErrRateLimited about the rotations of one ApiKey.
	ErrRotationLimited = fmt.Errorf("%w: rotations of an API key", ErrRateLimited)
	// ErrNewerOverride says that a newer override is stored already; nothing was written.
	ErrNewerOverride = errors.New("a newer override is stored")
	// ErrNotFound says that there is no such session for this caller; the Quota is filled.
	ErrNotFound = errors.New("no such session")
	// ErrIdempotencyMismatch says that the Idempotency-Key was used with another charge; the Quota
	// is filled. Only NewSession.RejectMismatch asks for it.
	ErrIdempotencyMismatch = errors.New("the Idempotency-Key was used with another charge")
	// ErrSessionEnded says that the session has ended in another way than was asked for; the Quota
	// is filled.
	ErrSessionEnded = errors.New("the session has already ended")
	// ErrPaymentConflict says that a report contradicts an earlier one of the same payment reference.
	ErrPaymentConflict = errors.New("the payment was reported otherwise before")
)

// How long things are kept. The limiter's entry ends by itself when its debt is paid; a session that no rail has reported on is
// kept for its lifetime and Options.SessionRetention.
const (
	// idempotencyRetention is the least; an Idempotency-Key never ends before its session expires.
	idempotencyRetention = 24 * time.Hour
	// maxLifetime is the most that a Merchant may ask for.
	maxLifetime = 24 * time.Hour
	// reportRetention is the least from a rail's report on: a session must be known for as long as a rail repeats its reports, and
	// never ends sooner for one.
	reportRetention = 30 * 24 * time.Hour

	defaultRetention = 72 * time.Hour
)

// OverrideLifetime is how long an override is kept. A replica whose watch is further behind may have
// missed a revocation for good.
const OverrideLifetime = 7 * 24 * time.Hour

// Options configure a Store.
type Options struct {
	// SessionRetention is how long a session outlives its expiry. Default 72 h, at least 24 h: a
	// session must outlive the Idempotency-Key that names it. What a rail has reported on is kept for 30 days at least.
	SessionRetention time.Duration
}

// Store is the sessions in Redis. It is safe for concurrent use, and any number of them may share one Redis.
type Store struct {
	redis     *redis.Client
	retention time.Duration
	uses      *lastUses
}

// New returns the store in a Redis.
func New(client *redis.Client, options Options) (*Store, error) {
	if options.SessionRetention == 0 {
		options.SessionRetention = defaultRetention
	}
	if options.SessionRetention < idempotencyRetention {
		return nil, errors.New("session retention: must be at least 24 h, for as long an Idempotency-Key is remembered")
	}
	return &Store{redis: client, retention: options.SessionRetention, uses: newLastUses()}, nil
}

//go:embed *.lua
var lua embed.FS

var (
	admitScript         = newScript("admit", "admit")
	admitRotationScript = newScript("admit_rotation", "admit_rotation")
	createScript        = newScript("create", "create")
	readOriginalScript  = newScript("read_original", "original")
	readScript          = newScript("read", "read")
	publicReadScript    = newScript("public_read", "public")
	cancelScript        = newScript("cancel", "cancel")
	settleScript        = newScript("settle", "settle")
	writeOverrideScript = newScript("write_override", "override")
	readOverridesScript = newScript("read_overrides", "overrides")
	readLastUsesScript  = newScript("read_last_uses", "last_uses")
	listOverdueScript   = newScript("list_overdue", "sweep_list")
	sweepQueueScript    = newScript("sweep_queue", "sweep_line")
	sweepSessionScript  = newScript("sweep_session", "sweep_single")
)

func newScript(operation, file string) *redis.Script { return redis.NewScript(operation, part(file)) }

func part(file string) string {
	text, err := fs.ReadFile(lua, file+".lua")
	if err != nil {
		return outbox.Part(file)
	}
	var whole strings.Builder
	for line := range strings.Lines(string(text)) {
		if included, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include: "); ok {
			whole.WriteString(part(included))
			continue
		}
		whole.WriteString(line)
	}
	return whole.String()
}
