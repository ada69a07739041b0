package dispatcher

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/dispatcher/attempt"
	"github.com/merchant-operator/merchant-operator/dispatcher/holder"
	"github.com/merchant-operator/merchant-operator/dispatcher/lease"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/dispatcher/queue"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

const (
	pollInterval     = 200 * time.Millisecond
	checkInterval    = 15 * time.Second
	rotationInterval = time.Second
)

const (
	// sweepBatch bounds how long one script blocks Redis.
	sweepBatch = 100
	// jobsPerAttempt bounds the events that wait here, of one endpoint and of all, for each attempt that may be in progress.
	// A quick endpoint works them off in a fraction of a second.
	jobsPerAttempt = 16
	// abortTimeout is the time to record attempts that were aborted.
	abortTimeout = 2 * time.Second
)

// dispatcher is one of any number that share a Redis.
type dispatcher struct {
	options   Options
	redis     *redis.Client // to learn of new events
	store     *store.Store  // to sweep
	outbox    *outbox.Outbox
	rotations *rotations
	holders   holder.Set
	metrics   *metrics
	log       *loop.Log
	pollEvery time.Duration

	// The rooms of an event's way, in its order: see lease.Leaser.Deliver.
	leaser *lease.Leaser
	queues *queue.Queues
	worker *attempt.Worker

	subscriber *subscriber
	// leasing, sweeping and trimming are the buckets with such work in progress.
	leasing, sweeping, trimming [session.Buckets]work
	workers                     sync.WaitGroup
	polls                       int
	pause                       time.Duration // until the next poll
	state                       atomic.Int32  // awake, polling or resting
}

// newDispatcher returns a dispatcher whose leases have names that begin with the identity.
func newDispatcher(
	options Options, client *redis.Client, sessions *store.Store, sender attempt.Sender, index attempt.Index, tracer *tracing.Tracer, rotations *rotations,
	registerer prometheus.Registerer, identity string,
) *dispatcher {
	events, log := outbox.New(client), loop.NewLog(options.Log)
	worker := &attempt.Worker{
		Outbox: events, Sender: sender, Index: index, Next: options.Schedule.Next, FailingLimit: options.FailingLimit, HealthChanged: loop.NewSignal(),
		Metrics: attempt.NewMetrics(registerer), Tracer: tracer, Now: options.Now, Log: log,
	}
	d := &dispatcher{
		options: options, redis: client, store: sessions, outbox: events, rotations: rotations, holders: holder.New(events, identity, log, options.Now),
		log: log, pollEvery: pollInterval, worker: worker, subscriber: newSubscriber(),
	}
	d.queues = queue.New(worker, queue.Limits{
		Concurrency: options.Concurrency, MaxInFlight: options.MaxInFlight, JobsPerAttempt: jobsPerAttempt,
	}, options.Now)
	d.leaser = &lease.Leaser{
		Outbox: events, Holders: d.holders, Worker: worker, Queues: d.queues, Duration: options.Lease, Leased: d.wake, Now: options.Now, Log: log,
	}
	d.metrics = newMetrics(registerer, d.queues.InFlight, events.DroppedDeadLetters)
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
	subscription := d.redis.Subscribe(store.EventsChannel, d.subscriber)
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
			Interval: checkInterval, Wake: d.subscriber.changed,
			Step: func(ctx context.Context) (bool, error) {
				d.leaseRecorded(ctx, attemptCtx)
				return false, nil
			},
		},
		{Interval: rotationInterval, Wake: d.rotations.added, Step: d.recordRotations},
		{Interval: checkInterval, Step: d.countBacklog},
		{Interval: checkInterval, Step: d.countRefundsOwed},
	}
	for _, one := range d.holders {
		loops = append(loops, loop.Loop{
			Interval: checkInterval, Wake: one.Removed,
			Step: func(ctx context.Context) (bool, error) { return false, d.freeLeases(ctx, attemptCtx, one) },
		})
	}
	loop.Run(ctx, d.log, loops...)
	d.workers.Wait()
}
