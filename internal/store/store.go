// Package store keeps sessions in Redis, with their payments and refunds. Each request is one Lua script, so that it is one round trip and all or
// nothing. The same scripts admit the request, with parts of package admission, and record events, with parts of package outbox.
package store

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/receipts"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// Each error says what the caller gets to know. Beside these there are those of package admission, redis.ErrCorrupt and redis.ErrUnavailable. None of them
// ever holds a key, a digest or an e-mail address.
var (
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

// How long things are kept. The limiter's entry ends with its theoretical arrival time; a session that no rail has reported on is
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

// How many refused payments of each rail a session keeps. Further ones get the same answer, but nothing is stored and no event is recorded.
const (
	maxRefusedPayments     = 100
	maxRefusedTestPayments = 5
)

// maxFailures is the bytes from which on a session keeps no more failures of a rail's payments that did not hold it. Further ones of that rail
// end the session only if they hold it.
const maxFailures = 4096

// Options configure a Store.
type Options struct {
	// SessionRetention is how long a session outlives its expiry. Default 72 h, at least 24 h: a
	// session must outlive the Idempotency-Key that names it. What a rail has reported on is kept for 30 days at least.
	// Sessions of test mode are kept for 24 h.
	SessionRetention time.Duration
	// History is how much of each feed is kept.
	History feed.History
	// Receipts: customers get a mail, so their addresses are stored until then. Those of test mode never are.
	Receipts bool
	// Admitter admits requests of merchants. Default: one of this Store's own.
	Admitter *admission.Admitter
}

// Store is the sessions in Redis. It is safe for concurrent use, and any number of them may share one Redis. What takes an admission.Request is a request of a
// merchant, and admitted and counted in the same script; Read methods are for callers whose rights were checked elsewhere.
type Store struct {
	redis      *redis.Client
	retention  time.Duration
	history    feed.History
	receipts   bool
	historyArg string // the history as scripts read it
	admitter   *admission.Admitter
}

// New returns the store in a Redis.
func New(client *redis.Client, options Options) (*Store, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	return &Store{redis: client, retention: cmp.Or(options.SessionRetention, defaultRetention),
		history: options.History.WithDefaults(), receipts: options.Receipts, historyArg: options.History.String(),
		admitter: cmp.Or(options.Admitter, admission.New(client, 0))}, nil
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
	return s.redis.Server(ctx, string(redis.BucketKeyspace(id.Bucket())))
}

//go:embed *.lua lib/*.lua
var files embed.FS

func script(operation string) *redis.Script {
	return redis.NewScript(operation, redis.Part(files, operation), parts, constants)
}

var constants = outbox.Constants.With(sessionhash.Constants).With(admission.Constants).With(redis.Constants{
	"const": {
		"ALREADY_REFUNDED":           redis.LuaText(session.AlreadyRefunded),
		"CORRUPT_RETRY_MS":           redis.LuaInt(corruptRetry.Milliseconds()),
		"DEFAULT_CURRENCY":           redis.LuaText(session.DefaultCurrency),
		"EVENTS_PER_REQUEST":         redis.LuaInt(eventsPerRequest),
		"EVENT_FIELDS":               redis.LuaTexts(feed.SessionFields[:]...),
		"EVENT_VERSION":              redis.LuaText(decimal(feed.Version)),
		"FIELDS_PER_REQUEST":         redis.LuaInt(fieldsPerRequest),
		"MAX_CHUNKS":                 redis.LuaInt(maxChunks),
		"MAX_FAILURES":               redis.LuaInt(maxFailures),
		"MAX_OPEN_REQUESTS":          redis.LuaInt(maxOpenRequests),
		"MAX_ORDER_SESSIONS":         redis.LuaInt(MaxOrderSessions),
		"MAX_REQUESTS":               redis.LuaInt(maxRequests),
		"ORDER_SESSIONS_PER_REQUEST": redis.LuaInt(orderSessionsPerRequest),
		"RANDOM_LENGTH":              redis.LuaInt(session.RandomLength),
		"SCANNED_AT_ONCE":            redis.LuaInt(scannedAtOnce),
	},
})

// parts are the parts of the scripts, by their names; see redis.NewScript.
var parts = redis.Parts{
	"clock":             redis.Clock,
	"admission":         admission.Parts["admission"],
	"surcharge":         admission.Parts["surcharge"],
	"sessions":          redis.Lazy("open_sessions", outbox.Parts["queue"], outbox.Parts["feed"], redis.Part(files, "lib/sessions")),
	"public_session":    redis.Part(files, "lib/public_session"),
	"list_order":        redis.Part(files, "lib/list_order"),
	"list_ended":        redis.Part(files, "lib/list_ended"),
	"list_receipt":      receipts.Parts["list_receipt"],
	"refused":           redis.Part(files, "lib/refused"),
	"holds":             redis.Part(files, "lib/holds"),
	"owed":              redis.Part(files, "lib/owed"),
	"refunds":           redis.Part(files, "lib/refunds"),
	"request_refund":    redis.Part(files, "lib/request_refund"),
	"cancel_decisions":  cancelDecisions(),
	"hold_decisions":    holdDecisions(),
	"settle_decisions":  settleDecisions(),
	"refund_decisions":  refundDecisions(),
	"request_decisions": requestDecisions(),
	"reject_decisions":  rejectDecisions(),
}

var (
	createScript              = script("create")
	readOriginalScript        = script("read_original")
	readScript                = script("read")
	publicReadScript          = script("public_read")
	watchedReadScript         = script("watched_read")
	readStoryScript           = script("read_story")
	readPaymentsScript        = script("read_payments")
	readFeedScript            = script("read_feed")
	listOrderScript           = script("list_order")
	expireOrderScript         = script("expire_order")
	listEndedScript           = script("list_ended")
	admitEndedScript          = script("admit_list_ended")
	cancelScript              = script("cancel")
	settleScript              = script("settle")
	holdScript                = script("hold")
	refundScript              = script("refund")
	requestRefundScript       = script("request_refund")
	admitRequestScript        = script("admit_request_refund")
	rejectRefundScript        = script("reject_refund")
	listRefundsScript         = script("list_refunds")
	findOverdueRequestsScript = script("find_overdue_requests")
	pollOwedScript            = script("poll_owed")
	listOverdueScript         = script("list_overdue")
	sweepScript               = script("sweep")
)

// run runs the script of a merchant's request. Beside the errors of an admission there are ErrNotFound and ErrIdempotencyMismatch: then the request
// was admitted nevertheless.
func run(ctx context.Context, call *admission.Call, what string) (admission.Admitted, string, redis.Reply, error) {
	admitted, word, reply, err := call.Run(ctx, what)
	if err == nil {
		err = wordError(word)
	}
	return admitted, word, reply, err
}

// The first word of a reply, where it says more than that the request was admitted.
const (
	wordCreated  = "CREATED"
	wordReplayed = "REPLAYED"
)

// wordError returns the error that the first word of a reply to an admitted request stands for.
func wordError(word string) error {
	switch word {
	case "OK", wordCreated, wordReplayed:
		return nil
	case "NOT_FOUND":
		return ErrNotFound
	case "MISMATCH":
		return ErrIdempotencyMismatch
	}
	return redis.ErrCorrupt
}

// endKeys writes the keys of a session that the script may have to expire or end: its own, those
// that record the event of its end, and the feed.
func endKeys(call *redis.Call, space redis.Keyspace, id session.ID) {
	call.Key("session_key", space, sessionhash.Key, id.String())
	outbox.WriteKeys(call, "ended_key", space, id, feed.MarkEnded)
	call.Key("feed_key", space, outbox.FeedKey, id.Account())
}

// sessionError reads the first word of a reply about one session: whether it is there and can be read.
func sessionError(reply *redis.Reply) error {
	switch reply.Text() {
	case "OK":
		return nil
	case "NOT_FOUND":
		return ErrNotFound
	default: // "CORRUPT" among them
		return redis.ErrCorrupt
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
