// Package outbox owns the events that merchants receive: from the record, which the script that makes the change writes, until each
// is delivered, dropped or a dead letter. Events wait in a queue, from which a dispatcher leases them.
package outbox

import (
	"embed"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// ErrLeaseLost says that the lease of an event or a receipt was given to somebody else since, or that it has ended. Nothing was changed.
var ErrLeaseLost = errors.New("the lease was lost")

// Outbox is the events in Redis. It is safe for concurrent use.
type Outbox struct {
	redis   *redis.Client
	dropped atomic.Int64
}

// MaxDeadLetters is how many a merchant keeps. For each further one the oldest is dropped.
const MaxDeadLetters = 10_000

// New returns the outbox in a Redis.
func New(client *redis.Client) *Outbox { return &Outbox{redis: client} }

//go:embed *.lua lib/*.lua
var files embed.FS

// Parts are the parts of the scripts here and in package store, by their names; see redis.NewScript.
var Parts = redis.Parts{
	"clock":        redis.Clock,
	"queue":        redis.Part(files, "lib/queue"),
	"feed":         redis.Part(files, "lib/feed"),
	"endpoint":     redis.Part(files, "lib/endpoint"),
	"target":       redis.Part(files, "lib/target"),
	"budget":       redis.Part(files, "lib/budget"),
	"full":         redis.Part(files, "lib/full"),
	"lease_held":   redis.Part(files, "lib/lease_held"),
	"dead_letters": redis.Part(files, "lib/dead_letters"),
}

var (
	rotationScript          = script("record_rotation")
	testScript              = script("record_test")
	sendWebhookTestScript   = script("send_webhook_test")
	answerWebhookTestScript = script("answer_webhook_test")
	readAttemptsScript      = script("read_attempts")
	leaseScript             = script("lease_events")
	heartbeatScript         = script("heartbeat")
	removeHolderScript      = script("remove_holder")
	forgetHolderScript      = script("forget_holder")
	freeLeasesScript        = script("free_leases")
	forgetScript            = script("forget_event")
	endScript               = script("end_event")
	failScript              = script("fail_event")
	retryTestScript         = script("retry_test_event")
	deferScript             = script("defer_events")
	deadLetterScript        = script("dead_letter_event")
	dropDeadLettersScript   = script("drop_dead_letters")
	listExcessScript        = script("list_excess")
	endExcessScript         = script("dead_letter_excess")
	listDeadLettersScript   = script("list_dead_letters")
	findDeadLettersScript   = script("find_dead_letters")
	resendDeadLettersScript = script("resend_dead_letters")
	pendingWorkScript       = script("poll_pending_work")
	pendingReportsScript    = script("poll_pending_reports")
	countBacklogScript      = script("count_backlog")
	refuseEndpointScript    = script("refuse_endpoint")
	endRefusalScript        = script("end_refusal")
	resumeEndpointScript    = script("resume_endpoint")
	readEndpointsScript     = script("read_endpoints")
	reportEndpointScript    = script("report_endpoint")
	forgetEndpointScript    = script("forget_endpoint")
)

func script(operation string) *redis.Script {
	return redis.NewScript(operation, redis.Part(files, operation), Parts, Constants)
}

// Constants are the constants of the scripts here, and of Parts.
var Constants = redis.Constants{
	"const": {
		"ENDPOINT_FIELDS":    endpointFields.List(),
		"ENDPOINT_KEEP_MS":   redis.LuaInt(endpointRetention.Milliseconds()),
		"EVENT_RETENTION_MS": redis.LuaInt(retention.Milliseconds()),
		"KEPT_ATTEMPTS":      redis.LuaInt(keptAttempts),
		"MAX_DEAD_LETTERS":   redis.LuaInt(MaxDeadLetters),
		"NOTHING_DUE_MS":     redis.LuaInt(NothingDue.Milliseconds()),
		"REPORT_INTERVAL_MS": redis.LuaInt(ReportInterval.Milliseconds()),
		"TEST_ENTRIES":       redis.LuaInt(feed.TestEntries),
		"UNHEALTHY_AFTER_MS": redis.LuaInt(UnhealthyAfter.Milliseconds()),
	},
	"at": endpointFields.Places(),
}.With(redis.Constants{"field": endpointFields.Names()}).With(redis.Constants{"field": eventFields.Names()})

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
