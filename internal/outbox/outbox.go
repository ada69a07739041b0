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

// Parts of scripts of package store, too.
var (
	// Queue records events; see lib/queue.lua.
	Queue = part("lib/queue")
	// Feed appends events to the feed; see lib/feed.lua.
	Feed = part("lib/feed")
	// Budget charges the budget for reports to a Merchant's status; see lib/budget.lua.
	Budget = part("lib/endpoint") + part("lib/budget")
)

var (
	clock       = redis.Clock
	endpoint    = part("lib/endpoint")
	leaseHeld   = part("lib/lease_held")
	forget      = part("lib/forget_dead_letters")
	deadLetters = forget + part("lib/dead_letters")
)

// The scripts and their parts. A part uses what those before it define.
var (
	rotationScript          = script("record_rotation", clock, Queue, Feed)
	testScript              = script("record_test", clock, Queue)
	sendWebhookTestScript   = script("send_webhook_test", clock, Queue)
	answerWebhookTestScript = script("answer_webhook_test", clock)
	readAttemptsScript      = script("read_attempts", clock)
	leaseScript             = script("lease_events", clock, Queue, endpoint)
	heartbeatScript         = script("heartbeat", clock)
	removeHolderScript      = script("remove_holder", clock)
	forgetHolderScript      = script("forget_holder", clock)
	freeLeasesScript        = script("free_leases", clock, Queue)
	forgetScript            = script("forget_event", clock, Queue)
	endScript               = script("end_event", clock, Queue, endpoint)
	failScript              = script("fail_event", clock, Queue, leaseHeld, deadLetters, endpoint)
	retryTestScript         = script("retry_test_event", clock, Queue, leaseHeld)
	deferScript             = script("defer_events", clock, Queue)
	deadLetterScript        = script("dead_letter_event", clock, Queue, leaseHeld, deadLetters)
	dropDeadLettersScript   = script("drop_dead_letters", clock)
	listDeadLettersScript   = script("list_dead_letters", clock, forget)
	findDeadLettersScript   = script("find_dead_letters", clock)
	resendDeadLettersScript = script("resend_dead_letters", clock, Queue, endpoint)
	pendingWorkScript       = script("poll_pending_work", clock)
	pendingReportsScript    = script("poll_pending_reports", clock)
	countBacklogScript      = script("count_backlog", clock)
	resumeEndpointScript    = script("resume_endpoint", clock, endpoint)
	readEndpointsScript     = script("read_endpoints", clock, endpoint)
	reportEndpointScript    = script("report_endpoint", clock, Budget)
	forgetEndpointScript    = script("forget_endpoint", clock)
)

func script(operation string, parts ...string) *redis.Script {
	return redis.NewScript(operation, part(operation), parts...)
}

// part returns a Lua file with our constants.
func part(name string) string { return constants.Replace(endpointFields.In(redis.Part(files, name))) }

var constants = strings.NewReplacer(
	"EVENT_RETENTION_MS", decimal(retention.Milliseconds()), "TEST_ENTRIES", decimal(feed.TestEntries), "MAX_DEAD_LETTERS", decimal(MaxDeadLetters),
	"UNHEALTHY_AFTER", decimal(UnhealthyAfter.Milliseconds()), "REPORT_INTERVAL", decimal(ReportInterval.Milliseconds()), "REPORT_TAT", "'"+ReportTATField+"'",
	"KEPT_ATTEMPTS", decimal(keptAttempts), "NOTHING_DUE", decimal(NothingDue.Milliseconds()))

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
