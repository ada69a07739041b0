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
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// ErrLeaseLost says that the lease was given to somebody else since, or that its event is gone. Nothing was
// changed.
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

// Queue is the part of a script that records events; see lib/queue.lua.
var Queue = redis.Part(files, "lib/queue")

// Feed is the part of a script that appends events to the feed; see lib/feed.lua.
var Feed = strings.ReplaceAll(redis.Part(files, "lib/feed"), "TEST_ENTRIES", strconv.Itoa(feed.TestEntries))

// Budget is the part of a script that takes a report to a Merchant's status from the merchant's budget; see lib/budget.lua.
var Budget = part("lib/endpoint") + part("lib/budget")

var (
	queue       = "local queue_key, due_key = KEYS[1], KEYS[2]\n" + Queue
	endpoint    = part("lib/endpoint")
	forget      = part("lib/forget_dead_letters")
	deadLetters = forget + strings.ReplaceAll(part("lib/dead_letters"), "MAX_DEAD_LETTERS", strconv.Itoa(MaxDeadLetters))
)

// The scripts and their parts. Each ends with a file of its own. A part uses what those before it define.
var (
	rotationScript          = script("record_rotation", redis.Clock, queue, Feed)
	testScript              = script("record_test", redis.Clock, queue)
	leaseScript             = script("lease_events", redis.Clock, queue, endpoint)
	forgetScript            = script("forget_event", redis.Clock, queue)
	endScript               = script("end_event", redis.Clock, queue, endpoint)
	failScript              = script("fail_event", redis.Clock, queue, deadLetters, endpoint)
	retryTestScript         = script("retry_test_event", redis.Clock, queue, deadLetters)
	deferScript             = script("defer_events", redis.Clock, queue)
	deadLetterScript        = script("dead_letter_event", redis.Clock, queue, deadLetters)
	dropDeadLettersScript   = script("drop_dead_letters", redis.Clock)
	listDeadLettersScript   = script("list_dead_letters", redis.Clock, forget)
	findDeadLettersScript   = script("find_dead_letters", redis.Clock)
	resendDeadLettersScript = script("resend_dead_letters", redis.Clock, queue, deadLetters, endpoint)
	pendingWorkScript       = script("poll_pending_work", redis.Clock)
	countBacklogScript      = script("count_backlog", redis.Clock)
	resumeEndpointScript    = script("resume_endpoint", redis.Clock, endpoint)
	readEndpointsScript     = script("read_endpoints", redis.Clock, endpoint)
	reportEndpointScript    = script("report_endpoint", redis.Clock, Budget)
	forgetEndpointScript    = script("forget_endpoint", redis.Clock)
)

func script(operation string, parts ...string) *redis.Script {
	return redis.NewScript(operation, append(parts, part(operation))...)
}

func part(name string) string {
	return endpointLimits.Replace(endpointFields.In(redis.Part(files, name)))
}

func allBuckets() []session.Bucket {
	buckets := make([]session.Bucket, session.Buckets)
	for i := range buckets {
		buckets[i] = session.Bucket(i)
	}
	return buckets
}
