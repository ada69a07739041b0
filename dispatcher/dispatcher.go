package dispatcher

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/holder"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/dispatcher/queue"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

const (
	pollInterval     = 200 * time.Millisecond
	backlogInterval  = 15 * time.Second
	rotationInterval = time.Second
)

const (
	// leaseBatch and sweepBatch bound how long one script blocks Redis.
	leaseBatch, sweepBatch = 64, 100
	// attemptMargin is the time after an attempt's timeout to record its result before the lease ends.
	attemptMargin = 2 * time.Second
	// redisTimeout is longer than the API's, whose callers wait: events whose lease was granted in an answer that comes
	// too late wait until it ends. A result can be recorded again within the margin.
	redisTimeout = time.Second
	// jobsPerAttempt bounds the events that wait here, of one endpoint and of all, for each attempt that may be in progress.
	// A quick endpoint works them off in a fraction of a second.
	jobsPerAttempt = 16
	// abortTimeout is the time to record attempts that were aborted.
	abortTimeout = 2 * time.Second
)

// index knows where events go.
type index interface {
	Endpoint(merchantID string) endpoints.Endpoint
	// Age is how long ago the watches gave the last sign of life.
	Age() time.Duration
}

// dispatcher is one of any number that share a Redis.
type dispatcher struct {
	*deliverer
	redis     *redis.Client // to learn of new events
	store     *store.Store  // to sweep
	rotations *rotations
	pollEvery time.Duration

	queues   *queue.Queues
	waiting  waitingAccounts
	recorded *recorded
	// leasing, sweeping and trimming are the buckets with such work in progress.
	leasing, sweeping, trimming [session.Buckets]work
	workers                     sync.WaitGroup
	polls                       int
	pause                       time.Duration // until the next poll
	state                       atomic.Int32  // awake, polling or resting
}

// newDispatcher returns a dispatcher whose leases have names that begin with the identity.
func newDispatcher(
	deliverer *deliverer, client *redis.Client, sessions *store.Store, index index, rotations *rotations, identity string,
) *dispatcher {
	deliverer.index = index
	deliverer.holders = holder.New(deliverer.outbox, identity, deliverer.log, func() time.Time { return deliverer.now() })
	d := &dispatcher{
		deliverer: deliverer, redis: client, store: sessions, rotations: rotations, pollEvery: pollInterval, recorded: newRecorded(),
	}
	d.queues = queue.New(deliverer, queue.Limits{
		Concurrency: d.options.Concurrency, MaxInFlight: d.options.MaxInFlight, JobsPerAttempt: jobsPerAttempt,
	}, func() time.Time { return d.now() })
	d.metrics.registerInFlight(d.queues.InFlight)
	d.metrics.registerDropped(d.outbox.DroppedDeadLetters)
	return d
}

var errAborted = errors.New("shutdown timeout: aborted attempts in progress")

// run works until ctx ends, then finishes the attempts in progress and releases events that wait here. With errAborted
// attempts took too long for that; their events are due again.
func (d *dispatcher) run(ctx context.Context) error {
	attemptCtx, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	// Until the last attempt has ended, else others would take its event over.
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	var beating sync.WaitGroup
	beating.Go(func() { d.holders.Run(alive, d.log) })
	defer beating.Wait()
	defer stop()
	d.loops(ctx, attemptCtx)
	d.holders.Drain()

	d.queues.Close(attemptCtx)
	if d.queues.Wait(d.options.ShutdownTimeout) {
		return nil
	}
	abort()
	d.queues.Wait(abortTimeout)
	return errAborted
}

// loops run until ctx ends. Attempts end with a context of their own.
func (d *dispatcher) loops(ctx, attemptCtx context.Context) {
	subscription := d.redis.Subscribe(store.EndedChannel, d.recorded)
	defer subscription.Close()
	for bucket := range session.Buckets {
		subscription.Add(session.Bucket(bucket)) //nolint:contextcheck // it ends with Close
	}
	loops := []loop.Loop{
		{
			Interval: d.pollEvery, Pause: func() time.Duration { return d.pause }, Wake: d.queues.Drained,
			Step: func(ctx context.Context) (bool, error) { return false, d.poll(ctx, attemptCtx) },
		},
		{
			Interval: backlogInterval, Wake: d.recorded.changed,
			Step: func(ctx context.Context) (bool, error) {
				d.leaseRecorded(ctx, attemptCtx)
				return false, nil
			},
		},
		{Interval: rotationInterval, Wake: d.rotations.added, Step: d.recordRotations},
		{Interval: backlogInterval, Step: d.countBacklog},
		{Interval: backlogInterval, Step: d.countRefundsOwed},
	}
	for _, one := range d.holders {
		loops = append(loops, loop.Loop{
			Interval: backlogInterval, Wake: one.Removed,
			Step: func(ctx context.Context) (bool, error) { return false, d.freeLeases(ctx, attemptCtx, one) },
		})
	}
	loop.Run(ctx, d.log, loops...)
	d.workers.Wait()
}
