// Package outbox owns the events that merchants receive: from the record, which the script that makes the change writes, until each
// is delivered, dropped or a dead letter. Events wait in a queue, from which a dispatcher leases them.
package outbox

import (
	"embed"
	"errors"
	"io/fs"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// ErrLeaseLost says that the lease was given to somebody else since, or that its event is gone. Nothing was
// changed.
var ErrLeaseLost = errors.New("the lease was lost")

// Outbox is the events in Redis. It is safe for concurrent use.
type Outbox struct{ redis *redis.Client }

// New returns the outbox in a Redis.
func New(client *redis.Client) *Outbox { return &Outbox{client} }

//go:embed *.lua
var lua embed.FS

var (
	rotationScript          = newScript("record_rotation", "rotation")
	leaseScript             = newScript("lease_events", "lease")
	forgetScript            = newScript("forget_event", "lease_lost")
	endScript               = newScript("end_event", "delivered")
	failScript              = newScript("fail_event", "deliver_failed")
	deferScript             = newScript("defer_events", "deliver_deferred")
	buryScript              = newScript("bury_event", "dead_bury")
	listDeadLettersScript   = newScript("list_dead_letters", "dead_list")
	resendDeadLettersScript = newScript("resend_dead_letters", "dead_resend")
	pendingWorkScript       = newScript("poll_pending_work", "look")
	countBacklogScript      = newScript("count_backlog", "dead_count")
	resumeEndpointScript    = newScript("resume_endpoint", "endpoint_resume")
	listUnhealthyScript     = newScript("list_unhealthy_endpoints", "endpoint_troubled")
	reportEndpointScript    = newScript("report_endpoint", "endpoint_told")
)

func newScript(operation, file string) *redis.Script { return redis.NewScript(operation, Part(file)) }

// Part returns a file with those it includes.
func Part(file string) string {
	text, err := fs.ReadFile(lua, file+".lua")
	if err != nil {
		panic(err)
	}
	var whole strings.Builder
	for line := range strings.Lines(string(text)) {
		if included, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include: "); ok {
			whole.WriteString(Part(included))
			continue
		}
		whole.WriteString(line)
	}
	return whole.String()
}

func allBuckets() []session.Bucket {
	buckets := make([]session.Bucket, session.Buckets)
	for i := range buckets {
		buckets[i] = session.Bucket(i)
	}
	return buckets
}
