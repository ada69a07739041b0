// Package store keeps sessions, rate limits and key overrides in Redis. Each request is one Lua script, so that it is
// one round trip and all or nothing. Events are recorded by the same scripts, with parts of package outbox.
package store

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Each error says what the caller gets to know. Beside these there are redis.ErrCorrupt and redis.ErrUnavailable. None of them
// ever holds a key, a digest or an e-mail address.
var (
	// ErrKeyRejected says that the presented API key is not, or no longer, accepted.
	ErrKeyRejected = errors.New("the API key is not accepted")
	// ErrMerchantInactive says that the key is good, but its merchant is not active.
	ErrMerchantInactive = errors.New("the merchant is not active")
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
	// ErrTestSession says that the session is of test mode, so no rail settles it.
	ErrTestSession = errors.New("the session is of test mode")
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
	// testRetention is that of sessions of test mode, and no report prolongs it. Not less than idempotencyRetention.
	testRetention = idempotencyRetention
)

// How many refused payments a session keeps. Further ones get the same answer, but nothing is stored and no event is recorded.
const (
	maxRefusedPayments     = 100
	maxRefusedTestPayments = 5
)

// OverrideLifetime is how long an override is kept. A replica whose watch is further behind may have
// missed a revocation for good.
const OverrideLifetime = 7 * 24 * time.Hour

// Options configure a Store.
type Options struct {
	// SessionRetention is how long a session outlives its expiry. Default 72 h, at least 24 h: a
	// session must outlive the Idempotency-Key that names it. What a rail has reported on is kept for 30 days at least.
	// Sessions of test mode are kept for 24 h.
	SessionRetention time.Duration
	// History is how much of each feed is kept.
	History feed.History
}

// Store is the sessions in Redis. It is safe for concurrent use, and any number of them may share one Redis.
type Store struct {
	redis     *redis.Client
	retention time.Duration
	history   feed.History
	trimming  string // the history as scripts read it
	uses      *lastUses
}

// New returns the store in a Redis.
func New(client *redis.Client, options Options) (*Store, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	return &Store{redis: client, retention: cmp.Or(options.SessionRetention, defaultRetention),
		history: options.History.WithDefaults(), trimming: options.History.String(), uses: newLastUses()}, nil
}

// Validate checks the options.
func (o Options) Validate() error {
	if o.SessionRetention != 0 && o.SessionRetention < idempotencyRetention {
		return errors.New("must be at least 24h, as long as an Idempotency-Key is remembered")
	}
	return nil
}

// Server names the Redis server that has a session, as redis.Client.Server does.
func (s *Store) Server(ctx context.Context, id session.ID) string {
	return s.redis.Server(ctx, string(redis.KeyspaceOf(id.Bucket())))
}

//go:embed *.lua lib/*.lua
var files embed.FS

func script(operation string, parts ...string) *redis.Script {
	return redis.NewScript(operation, append(parts, part(operation))...)
}

func part(name string) string {
	return sessionFields.In(orderSizes.Replace(strings.NewReplacer("EVENT_FIELDS", eventFields, "EVENT_VERSION", strconv.Itoa(feed.Version), "PUBLIC_FIELDS", publicFields).Replace(redis.Part(files, name))))
}

// What a request reads at once, before lib/admission.lua.
const (
	readKeyState    = "local stored = call('MGET', KEYS[1], KEYS[2])\n" + keyState
	readKeyStateAnd = "local stored = call('MGET', KEYS[1], KEYS[2], KEYS[3])\n" + keyState
	readPayerState  = "local paid_until, override, flags = call('GET', KEYS[1]), false, ''\n" +
		"local session_key, event_key, queue_key, due_key, feed_key, history = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], ARGV[3]\n"
	// unlimited stands for lib/admission.lua where nobody is to be refused.
	unlimited = "local session_key, event_key, queue_key, due_key, feed_key, history = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1]\n" +
		"local result, moment = false, ' ' .. clock[1] .. ' ' .. clock[2] .. ' 0'\n"
	// readCreateState: KEYS[6] is the Idempotency-Key.
	readCreateState = "local stored = ARGV[11] and call('MGET', KEYS[1], KEYS[2], KEYS[6]) or call('MGET', KEYS[1], KEYS[2])\n" +
		keyState
	keyState = "local paid_until, override, flags = stored[1], stored[2], ARGV[4]\n"
	// admit returns the last use of the key, KEYS[3], as well.
	admit = "return result and result .. moment or 'OK' .. moment .. ' ' .. (stored[3] or '0')\n"
	// limit does nothing but count.
	limit = "return result and result .. moment or 'OK' .. moment\n"
	// schedule has a new test session looked at when it is to act by itself: before it is written, as with its expiry.
	schedule = "if not result and not stored[3] then call('ZADD', KEYS[5], now_ms + TEST_OUTCOME_DELAY, KEYS[3]) end\n"
)

var testDelay = strings.NewReplacer("TEST_OUTCOME_DELAY", decimal(session.TestOutcomeDelay.Milliseconds()))

var (
	admission = part("lib/admission")
	change    = redis.Function("sessions(queue_key, due_key, history)", "s", outbox.Queue, outbox.Feed, part("lib/sessions"))
	sweep     = part("lib/sweep")
	listOrder = part("lib/list_order")
	listEnded = scanSizes.Replace(part("lib/list_ended"))
)

// The scripts and their parts. Most end with a file of their own. A part uses what those before it define. Few requests change a session, so
// what they need is behind one function, sessions().
var (
	admitScript         = redis.NewScript("admit", redis.Clock, readKeyStateAnd, admission, admit)
	admitRotationScript = redis.NewScript("admit_rotation", redis.Clock, readKeyState, admission, limit)
	limitIssueScript    = redis.NewScript("limit_issue", redis.Clock, readPayerState, admission, limit)
	createScript        = script("create", redis.Clock, readCreateState, admission, change)
	createActingScript  = redis.NewScript("create_acting", redis.Clock, readCreateState, admission, testDelay.Replace(schedule), change, part("create"))
	readOriginalScript  = script("read_original", redis.Clock, change)
	readScript          = script("read", redis.Clock, readKeyState, admission, change)
	publicReadScript    = script("public_read", redis.Clock, readPayerState, admission, change)
	watchedReadScript   = redis.NewScript("watched_read", redis.Clock, unlimited, change, part("public_read"))
	readStoryScript     = script("read_story", redis.Clock)
	listOrderScript     = script("list_order", redis.Clock, readKeyState, admission, listOrder)
	expireOrderScript   = script("expire_order", redis.Clock, change, listOrder)
	listEndedScript     = script("list_ended", redis.Clock, listEnded)
	admitEndedScript    = script("admit_list_ended", redis.Clock, readKeyState, admission, listEnded)
	readFeedScript      = script("read_feed", redis.Clock, readKeyState, admission)
	cancelScript        = script("cancel", redis.Clock, readKeyState, admission, change)
	settleScript        = script("settle", redis.Clock, change)
	writeOverrideScript = script("write_override")
	endOverrideScript   = script("end_override", redis.Clock)
	readOverridesScript = script("read_overrides", redis.Clock)
	readLastUsesScript  = script("read_last_uses")
	listOverdueScript   = script("list_overdue", redis.Clock)
	sweepQueueScript    = script("sweep_queue", redis.Clock, change, sweep)
	sweepSessionScript  = script("sweep_session", redis.Clock, change, sweep)
)
