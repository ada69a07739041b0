package outbox

import (
	"context"
	"errors"
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
	// Endpoints: there are some for WatchedEndpoints.
	Endpoints bool
	// Blocked: there are merchants with blocked addresses.
	Blocked bool
	// Overdue is for how long the first of the Sessions has passed its expiry.
	Overdue time.Duration
}

// PendingWork polls all buckets in one round trip, so that nobody polls each of them in vain. It changes nothing. In a
// Redis Cluster it takes one to each server; what those return that answered is returned beside the error of the others. The error is
// redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) PendingWork(ctx context.Context) ([]PendingWork, error) {
	buckets := allBuckets()
	if o.redis.Clustered() {
		return o.pollEach(ctx, buckets)
	}
	reply, err := o.redis.Run(ctx, newPollCall(buckets...))
	if err != nil {
		return nil, fmt.Errorf("poll for work: %w", err)
	}
	return parsePendingWork(&reply, buckets...)
}

// pollEach polls each bucket on its own, for they are in slots of their own.
func (o *Outbox) pollEach(ctx context.Context, buckets []session.Bucket) ([]PendingWork, error) {
	calls := make([]*redis.Call, len(buckets))
	for i, bucket := range buckets {
		calls[i] = newPollCall(bucket)
	}
	replies, errs := o.redis.RunEach(ctx, calls)
	var all []PendingWork
	for i, bucket := range buckets {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("poll for work: %w", errs[i])
			continue
		}
		var found []PendingWork
		found, errs[i] = parsePendingWork(&replies[i], bucket)
		all = append(all, found...)
	}
	return all, errors.Join(errs...)
}

func newPollCall(buckets ...session.Bucket) *redis.Call {
	call := redis.NewCall(pendingWorkScript)
	for _, bucket := range buckets {
		for _, kind := range []string{DueKey, ExpiryKey, watchedKey, BlockedKey} {
			call.MoreKey(redis.KeyspaceOf(bucket), kind)
		}
	}
	return &call
}

func parsePendingWork(reply *redis.Reply, buckets ...session.Bucket) ([]PendingWork, error) {
	reply.OK()
	all := make([]PendingWork, len(buckets))
	for i, bucket := range buckets {
		event, expired := reply.Int(), reply.Int()
		all[i] = PendingWork{
			Bucket: bucket, Events: event >= 0, Sessions: expired >= 0, Endpoints: reply.Int() > 0, Blocked: reply.Int() > 0,
			Overdue: time.Duration(max(0, expired)) * time.Millisecond,
		}
	}
	if err := reply.Err(); err != nil {
		return nil, fmt.Errorf("poll for work: %w", err)
	}
	return all, nil
}

// Backlog counts what waits in a bucket.
type Backlog struct {
	// Due are events that wait for delivery, now or later; Dead those that were given up.
	Due, Dead int64
	// Overdue is for how long the first event is due that a dispatcher may try. It waits for an attempt, or for the end of a crashed
	// dispatcher's lease.
	Overdue time.Duration
}

// Backlog counts what waits in a bucket, for a dispatcher that cannot try the events of blocked accounts now. The error is
// redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) Backlog(ctx context.Context, bucket session.Bucket, blocked ...string) (Backlog, error) {
	space := redis.KeyspaceOf(bucket)
	call := redis.NewCall(countBacklogScript)
	call.Key("queue_key", space, QueueKey)
	call.Key("dead_key", space, deadLettersKey)
	call.Key("due_key", space, DueKey)
	call.Millis("dead_keep", retention)
	for _, account := range blocked {
		call.More(account)
	}
	reply, err := o.redis.Run(ctx, &call)
	if err != nil {
		return Backlog{}, fmt.Errorf("count the backlog: %w", err)
	}
	reply.OK()
	backlog := Backlog{Due: reply.Int(), Dead: reply.Int(), Overdue: time.Duration(reply.Int()) * time.Millisecond}
	if err := reply.Err(); err != nil {
		return Backlog{}, fmt.Errorf("count the backlog: %w", err)
	}
	return backlog, nil
}
