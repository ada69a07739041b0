package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// PendingWork is what there is to do in a bucket.
type PendingWork struct {
	Bucket session.Bucket
	// Events are due, to be leased; Sessions have passed their expiry and are still pending.
	Events, Sessions bool
	// Overdue is for how long the first of the Sessions has passed its expiry.
	Overdue time.Duration
	// Next is the time until the next event is due or the next session expires, of those that are not yet.
	Next time.Duration
}

// PendingWork polls all buckets in one round trip, instead of one for each bucket. It changes nothing. In a
// Redis Cluster it takes one to each server; what those return that answered is returned beside the error of the others. The error is
// redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) PendingWork(ctx context.Context) ([]PendingWork, error) {
	return poll(ctx, o, pendingWorkScript, func(reply *redis.Reply, bucket session.Bucket) PendingWork {
		event, expiry := reply.Int(), reply.Int()
		work := PendingWork{Bucket: bucket, Events: event <= 0, Sessions: expiry <= 0, Next: NothingDue}
		for _, ms := range []int64{event, expiry} {
			if ms > 0 {
				work.Next = min(work.Next, time.Duration(ms)*time.Millisecond)
			}
		}
		work.Overdue = time.Duration(max(0, -expiry)) * time.Millisecond
		return work
	}, DueKey, ExpiryKey)
}

// NothingDue is longer than anything in Redis lasts. It is what poll_pending_work.lua says of an empty queue.
const NothingDue = 400 * 24 * time.Hour

// PendingReports is what there may be to report in a bucket.
type PendingReports struct {
	Bucket session.Bucket
	// Endpoints: there are some for WatchedEndpoints.
	Endpoints bool
	// Blocked: there are merchants with blocked addresses.
	Blocked bool
}

// PendingReports polls all buckets as PendingWork does.
func (o *Outbox) PendingReports(ctx context.Context) ([]PendingReports, error) {
	return poll(ctx, o, pendingReportsScript, func(reply *redis.Reply, bucket session.Bucket) PendingReports {
		return PendingReports{Bucket: bucket, Endpoints: reply.Int() > 0, Blocked: reply.Int() > 0}
	}, watchedKey, BlockedKey)
}

// poll runs a script on the keys of these kinds of all buckets, and parses its reply for each.
func poll[T any](ctx context.Context, o *Outbox, script *redis.Script, parse func(*redis.Reply, session.Bucket) T, kinds ...string) ([]T, error) {
	all, err := redis.Poll(ctx, o.redis, script, kinds, nil, parse)
	if err != nil {
		err = fmt.Errorf("poll for work: %w", err)
	}
	return all, err
}

// Backlog counts what waits in a bucket.
type Backlog struct {
	// Due are events that wait for delivery, now or later; Dead those that were given up.
	Due, Dead int64
	// Overdue is for how long the first event is due that a dispatcher may try. It waits for an attempt, or for the end of a crashed
	// dispatcher's lease.
	Overdue time.Duration
}

// Backlog counts what waits in a bucket, for a dispatcher that cannot try the events of paused accounts now. The error is
// redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) Backlog(ctx context.Context, bucket session.Bucket, paused ...string) (Backlog, error) {
	space := redis.BucketKeyspace(bucket)
	call := redis.NewCall(countBacklogScript)
	call.Key("queue_key", space, QueueKey)
	call.Key("dead_key", space, deadLettersKey)
	call.Key("due_key", space, DueKey)
	for _, account := range paused {
		call.More(account)
	}
	reply, err := o.redis.Run(ctx, &call)
	if err != nil {
		return Backlog{}, fmt.Errorf("count the backlog: %w", err)
	}
	reply.RequireOK()
	backlog := Backlog{Due: reply.Int(), Dead: reply.Int(), Overdue: time.Duration(reply.Int()) * time.Millisecond}
	if err := reply.Err(); err != nil {
		return Backlog{}, fmt.Errorf("count the backlog: %w", err)
	}
	return backlog, nil
}
