// Package outbox owns the events that merchants receive: from the record, which the script that makes the change writes, until each
// is delivered, dropped or a dead letter. Events wait in a queue, from which a dispatcher leases them.
package outbox

import (
	"embed"
	"errors"
	"strconv"
	"strings"
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

// Parts are those of the scripts here and in package store, by their names; see redis.NewScript.
var Parts = redis.Parts{
	"clock":               redis.Clock,
	"queue":               part("lib/queue"),
	"feed":                part("lib/feed"),
	"endpoint":            part("lib/endpoint"),
	"target":              part("lib/target"),
	"budget":              part("lib/budget"),
	"full":                part("lib/full"),
	"lease_held":          part("lib/lease_held"),
	"forget_dead_letters": part("lib/forget_dead_letters"),
	"dead_letters":        part("lib/dead_letters"),
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
	resumeEndpointScript    = script("resume_endpoint")
	readEndpointsScript     = script("read_endpoints")
	reportEndpointScript    = script("report_endpoint")
	forgetEndpointScript    = script("forget_endpoint")
)

func script(operation string) *redis.Script {
	return redis.NewScript(operation, part(operation), Parts)
}

// part returns a Lua file with our constants.
func part(name string) string { return constants.Replace(endpointFields.In(redis.Part(files, name))) }

var constants = strings.NewReplacer(
	"EVENT_RETENTION_MS", decimal(retention.Milliseconds()), "TEST_ENTRIES", decimal(feed.TestEntries), "MAX_DEAD_LETTERS", decimal(MaxDeadLetters),
	"UNHEALTHY_AFTER", decimal(UnhealthyAfter.Milliseconds()), "REPORT_INTERVAL", decimal(ReportInterval.Milliseconds()), "REPORT_TAT", "'"+ReportTATField+"'",
	"KEPT_ATTEMPTS", decimal(keptAttempts), "NOTHING_DUE", decimal(NothingDue.Milliseconds()))

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
