package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// pollsPerSweep: where sessions are created all the time, some expire all the time, most of them settled before. To sweep
// less often costs less.
const pollsPerSweep = 2

// restInterval bounds how late a dispatcher at rest sees what no message announces: sessions of test mode that settle a second after their
// creation, and retries of other dispatchers.
const restInterval = time.Second

// What the loop of polls does. What starts during a poll may be missing in its answer, so it keeps it from resting.
const (
	awake = iota
	polling
	resting
)

// poll starts a lease or a sweep of each bucket in which something is due, and does not wait for them: a bucket whose
// Redis Cluster server is slow delays no other. At most one lease and one sweep of a bucket are in progress.
//
// If nothing is due or in progress, and messages of all buckets arrive, it rests until the next one is due, for at most restInterval.
func (d *dispatcher) poll(ctx, attemptCtx context.Context) error {
	subscribed := d.subscriber.subscribedToAll() // before it looks: from then on messages arrive
	d.state.Store(polling)
	pending, err := loop.Pending(ctx, d.outbox.PendingWork, d.log)
	d.polls++
	rest, next := subscribed && len(pending) == session.Buckets && d.queues.Idle(), jitter.Add(restInterval, jitter.Fraction())
	for _, work := range pending {
		bucket := work.Bucket
		if work.Events {
			d.startDelivery(ctx, attemptCtx, bucket)
		}
		if work.Sessions && d.polls%pollsPerSweep == 0 {
			d.start(ctx, &d.sweeping[bucket], func() (bool, error) { return d.sweep(ctx, bucket) })
		}
		rest = rest && !work.Events && !work.Sessions
		next = min(next, work.Next)
	}
	d.pause = jitter.Add(d.pollEvery, jitter.Fraction())
	if rest && d.state.CompareAndSwap(polling, resting) {
		d.pause = max(d.pause, next)
	} else {
		d.state.Store(awake)
	}
	return err
}

// wake ends a rest with a poll, and keeps the present poll from one.
func (d *dispatcher) wake() {
	if d.state.Swap(awake) == resting {
		d.queues.Drained.Set()
	}
}

func (d *dispatcher) startDelivery(ctx, attemptCtx context.Context, bucket session.Bucket) {
	d.start(ctx, &d.leasing[bucket], func() (bool, error) { return d.leaser.Deliver(attemptCtx, bucket) })
}

// leaseRecorded starts leases of the buckets in which events were recorded. While messages may be lost, there is no rest.
func (d *dispatcher) leaseRecorded(ctx, attemptCtx context.Context) {
	if !d.subscriber.subscribedToAll() {
		d.wake()
	}
	loop.Pause(ctx, gatherTime)
	for _, bucket := range d.subscriber.takeBuckets() {
		d.startDelivery(ctx, attemptCtx, bucket)
	}
}

// work is what runs once at a time.
type work struct {
	asked atomic.Int32 // how often it was asked for since it started; 0: it does not run
}

// start repeats a step while it reports more work. If the step is in progress already, it runs once more after that: it may
// have missed what it is asked for. After an error the next poll starts it again.
func (d *dispatcher) start(ctx context.Context, w *work, step func() (more bool, err error)) {
	if w.asked.Add(1) > 1 {
		return
	}
	d.workers.Go(func() {
		for {
			asked := w.asked.Load()
			for more := true; more && ctx.Err() == nil; {
				var err error
				more, err = step()
				if err != nil && ctx.Err() == nil {
					d.log.RedisFailed(err)
					w.asked.Store(0)
					return
				}
			}
			if w.asked.CompareAndSwap(asked, 0) {
				return
			}
		}
	})
}

// sweep expires sessions of a bucket that nobody has read since their expiry, and settles those of test mode.
func (d *dispatcher) sweep(ctx context.Context, bucket session.Bucket) (more bool, err error) {
	swept, err := d.store.Sweep(ctx, bucket, sweepBatch)
	if err != nil {
		return false, err
	}
	d.metrics.expiredSessions.Add(float64(swept.Expired))
	if swept.Expired > 0 {
		d.metrics.expiryLag.Observe(swept.Oldest.Seconds())
	}
	if swept.Corrupt > 0 {
		d.log.Error("could not decode sessions, so they do not expire", "bucket", bucket, "sessions", swept.Corrupt)
	}
	return swept.More, nil
}

// trim ends the events of a bucket that are beyond the bound of their account: an endpoint that takes none must not fill Redis.
func (d *dispatcher) trim(ctx context.Context, bucket session.Bucket) (more bool, err error) {
	all, err := d.outbox.Excess(ctx, bucket, d.options.MaxPending)
	if err != nil {
		return false, err
	}
	for _, excess := range all {
		merchant := d.worker.Index.Endpoint(excess.MerchantID).Merchant.String()
		ended, err := d.outbox.EndExcess(ctx, excess, merchant)
		if err != nil {
			return false, err
		}
		d.worker.Metrics.EndedExcess(ended, excess.TestMode)
		more = more || ended > 0
		if ended > 0 && d.log.Allow(outbox.ReasonTooMany, time.Minute) {
			d.log.Warn("a merchant has too many events that wait for delivery; those that are due first end",
				"merchant", merchant, "most", outbox.MaxPending(d.options.MaxPending, excess.TestMode))
		}
	}
	return more, nil
}

// countBacklog counts the waiting events for the metrics, and starts to trim them. While servers of a Redis Cluster are unavailable, it counts
// those of the others.
func (d *dispatcher) countBacklog(ctx context.Context) (more bool, err error) {
	pending, err := loop.Pending(ctx, d.outbox.PendingWork, d.log)
	if err != nil {
		return false, err
	}
	var mu sync.Mutex
	var total outbox.Backlog
	var overdueSession time.Duration
	var buckets []session.Bucket
	for _, work := range pending {
		buckets = append(buckets, work.Bucket)
		overdueSession = max(overdueSession, work.Overdue)
	}
	err = d.redis.ForEach(ctx, buckets, func(ctx context.Context, bucket session.Bucket) error {
		backlog, err := d.outbox.Backlog(ctx, bucket, d.leaser.Paused(bucket)...)
		if backlog.Due > outbox.MaxPending(d.options.MaxPending, true) {
			d.start(ctx, &d.trimming[bucket], func() (bool, error) { return d.trim(ctx, bucket) })
		}
		mu.Lock()
		defer mu.Unlock()
		total.Due += backlog.Due
		total.Dead += backlog.Dead
		total.Overdue = max(total.Overdue, backlog.Overdue)
		return err
	})
	d.metrics.dueEvents.Set(float64(total.Due))
	d.metrics.deadLetters.Set(float64(total.Dead))
	d.metrics.overdueEvent.Set(total.Overdue.Seconds())
	d.metrics.overdueSession.Set(overdueSession.Seconds())
	return false, err
}

// countRefundsOwed counts the refunds that rails owe, for the metrics.
func (d *dispatcher) countRefundsOwed(ctx context.Context) (more bool, err error) {
	ages := make([]time.Duration, len(refundAges))
	for i, bin := range refundAges {
		ages[i] = bin.age
	}
	counts, err := d.store.CountOwed(ctx, ages)
	if err != nil {
		return false, err
	}
	for i, bin := range refundAges {
		d.metrics.refundsOwed.WithLabelValues(bin.label).Set(float64(counts.Payments[i]))
		d.metrics.refundsRequested.WithLabelValues(bin.label).Set(float64(counts.Requests[i]))
	}
	return false, nil
}
