// Package outbox owns the events that merchants receive: from the record, which the script that makes the change writes, until each
// is delivered, dropped or a dead letter. Events wait in a queue, from which a dispatcher leases them.
package outbox

import (
	"embed"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"

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

//go:embed *.lua
var files embed.FS

// Queue is the part of a script that records events; see queue.lua.
var Queue = strings.ReplaceAll(redis.Part(files, "queue"), "RECORD_VERSION", strconv.Itoa(recordVersion))

// Budget is the part of a script that takes a report to a Merchant's status from the merchant's budget; see endpoint.lua.
var Budget = part("endpoint") + part("pay_report")

var (
	queue       = "local queue_key, due_key = KEYS[1], KEYS[2]\n" + Queue
	endpoint    = part("endpoint")
	forget      = part("forget_dead_letters")
	deadLetters = forget + strings.ReplaceAll(part("deadletters"), "MAX_DEAD_LETTERS", strconv.Itoa(MaxDeadLetters))
)

// The scripts and their parts. A part uses what those before it define.
var (
	rotationScript          = redis.NewScript("record_rotation", redis.Clock, queue, part("record_rotation"))
	testScript              = redis.NewScript("record_test", redis.Clock, queue, part("record_webhook_test"))
	leaseScript             = redis.NewScript("lease_events", redis.Clock, queue, endpoint, part("lease"))
	forgetScript            = redis.NewScript("forget_event", redis.Clock, queue, forgetLua)
	endScript               = redis.NewScript("end_event", redis.Clock, queue, endpoint, part("end"))
	failScript              = redis.NewScript("fail_event", redis.Clock, queue, deadLetters, endpoint, part("fail"))
	retryTestScript         = redis.NewScript("retry_test_event", redis.Clock, queue, deadLetters, retryTestLua)
	deferScript             = redis.NewScript("defer_events", redis.Clock, queue, deferLua)
	deadLetterScript        = redis.NewScript("dead_letter_event", redis.Clock, queue, deadLetters, deadLetterLua)
	dropDeadLettersScript   = redis.NewScript("drop_dead_letters", redis.Clock, part("drop_dead_letters"))
	listDeadLettersScript   = redis.NewScript("list_dead_letters", redis.Clock, forget, part("list_dead_letters"))
	findDeadLettersScript   = redis.NewScript("find_dead_letters", redis.Clock, findDeadLettersLua)
	resendDeadLettersScript = redis.NewScript("resend_dead_letters", redis.Clock, queue, deadLetters, endpoint, part("resend_dead_letters"))
	pendingWorkScript       = redis.NewScript("poll_pending_work", redis.Clock, part("pending_work"))
	countBacklogScript      = redis.NewScript("count_backlog", redis.Clock, part("count_backlog"))
	resumeEndpointScript    = redis.NewScript("resume_endpoint", redis.Clock, endpoint, part("resume_endpoint"))
	readEndpointsScript     = redis.NewScript("read_endpoints", redis.Clock, endpoint, part("read_endpoints"))
	reportEndpointScript    = redis.NewScript("report_endpoint", redis.Clock, Budget, part("report_endpoint"))
	forgetEndpointScript    = redis.NewScript("forget_endpoint", redis.Clock, forgetEndpointLua)
)

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
