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
	// Refusals: allowlists of merchants have refused somebody.
	Refusals bool
	// Overdue is how long the first of what is due has waited.
	Overdue Overdue
}

// Overdue is for how long what has waited longest in a bucket is due; zero: nothing is.
type Overdue struct {
	// Event waits for an attempt to deliver it, or for the end of a crashed dispatcher's lease.
	Event time.Duration
	// Session has passed its expiry and is still pending.
	Session time.Duration
}

// PendingWork polls all buckets in one round trip, so that nobody polls each of them in vain. It changes nothing. In a
// Redis Cluster it takes one to each server; what those return that answered is returned beside the error of the others. The error is
// redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) PendingWork(ctx context.Context) ([]PendingWork, error) {
	buckets := allBuckets()
	if o.redis.Clustered() {
		return o.pollEach(ctx, buckets)
	}
	reply, err := o.redis.Run(ctx, pendingWorkScript, pollKeys(buckets...))
	if err != nil {
		return nil, fmt.Errorf("poll for work: %w", err)
	}
	return pendingWorkOf(&reply, buckets...)
}

// pollEach polls each bucket on its own, for they are in slots of their own.
func (o *Outbox) pollEach(ctx context.Context, buckets []session.Bucket) ([]PendingWork, error) {
	groups := make([]redis.KeyGroup, len(buckets))
	for i, bucket := range buckets {
		groups[i] = pollKeys(bucket)
	}
	replies, errs := o.redis.RunEach(ctx, pendingWorkScript, groups)
	var all []PendingWork
	for i, bucket := range buckets {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("poll for work: %w", errs[i])
			continue
		}
		var found []PendingWork
		found, errs[i] = pendingWorkOf(&replies[i], bucket)
		all = append(all, found...)
	}
	return all, errors.Join(errs...)
}

func pollKeys(buckets ...session.Bucket) []string {
	keys := make([]string, 0, 4*len(buckets))
	for _, bucket := range buckets {
		space := redis.KeyspaceOf(bucket)
		keys = append(keys, space.Key(redis.DueKey), space.Key(redis.ExpiryKey), space.Key(redis.WatchedKey), space.Key(redis.RefusalsKey))
	}
	return keys
}

func pendingWorkOf(reply *redis.Reply, buckets ...session.Bucket) ([]PendingWork, error) {
	reply.OK()
	all := make([]PendingWork, len(buckets))
	for i, bucket := range buckets {
		event, expired := reply.Int(), reply.Int()
		all[i] = PendingWork{
			Bucket: bucket, Events: event >= 0, Sessions: expired >= 0, Endpoints: reply.Int() > 0, Refusals: reply.Int() > 0,
			Overdue: Overdue{Event: overdueOf(event), Session: overdueOf(expired)},
		}
	}
	if err := reply.Err(); err != nil {
		return nil, fmt.Errorf("poll for work: %w", err)
	}
	return all, nil
}

func overdueOf(ms int64) time.Duration { return time.Duration(max(0, ms)) * time.Millisecond }

// Backlog counts what waits in a bucket.
type Backlog struct {
	// Due are events that wait for delivery, now or later; Dead those that were given up.
	Due, Dead int64
}

// backlogLua counts what waits. KEYS are the queue and the dead letters; ARGV[1] how long dead letters are kept in ms.
const backlogLua = `
return {'OK', call('ZCARD', KEYS[1]), call('ZCOUNT', KEYS[2], now_ms - ARGV[1], '+inf')}
`

// Backlog counts what waits in a bucket. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) Backlog(ctx context.Context, bucket session.Bucket) (Backlog, error) {
	space := redis.KeyspaceOf(bucket)
	keys := []string{space.Key(redis.QueueKey), space.Key(redis.DeadLettersKey)}
	reply, err := o.redis.Run(ctx, countBacklogScript, keys, retention.Milliseconds())
	if err != nil {
		return Backlog{}, fmt.Errorf("count the backlog: %w", err)
	}
	reply.OK()
	backlog := Backlog{Due: reply.Int(), Dead: reply.Int()}
	if err := reply.Err(); err != nil {
		return Backlog{}, fmt.Errorf("count the backlog: %w", err)
	}
	return backlog, nil
}
