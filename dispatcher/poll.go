package dispatcher

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// pollsPerSweep: where sessions are created all the time, some expire all the time, most of them settled before. To sweep
// less often costs less.
const pollsPerSweep = 2

// poll starts a lease or a sweep of each bucket in which something is due, and does not wait for them: a bucket whose
// Redis Cluster server is slow delays no other. At most one lease and one sweep of a bucket are in progress.
func (d *dispatcher) poll(ctx, attempts context.Context) error {
	pending, err := loop.PendingWork(ctx, d.outbox, d.log)
	d.polls++
	for _, work := range pending {
		bucket := work.Bucket
		if work.Events {
			d.start(ctx, &d.leasing[bucket], func() (bool, error) { return d.lease(attempts, bucket) })
		}
		if work.Sessions && d.polls%pollsPerSweep == 0 {
			d.start(ctx, &d.sweeping[bucket], func() (bool, error) { return d.sweep(ctx, bucket) })
		}
	}
	return err
}

// start repeats a step while it reports more work, unless it is in progress already. After an error the next poll
// starts it again.
func (d *dispatcher) start(ctx context.Context, inProgress *atomic.Bool, step func() (more bool, err error)) {
	if !inProgress.CompareAndSwap(false, true) {
		return
	}
	d.workers.Go(func() {
		defer inProgress.Store(false)
		for more := true; more && ctx.Err() == nil; {
			var err error
			more, err = step()
			if err != nil && ctx.Err() == nil {
				d.log.RedisFailed(err)
				return
			}
		}
	})
}

// sweep expires sessions of a bucket that nobody has read since their expiry, after those of test mode got their payments.
func (d *dispatcher) sweep(ctx context.Context, bucket session.Bucket) (more bool, err error) {
	overdue, err := d.store.Overdue(ctx, bucket, sweepBatch)
	if err != nil {
		return false, err
	}
	if err := d.store.SettleTests(ctx, overdue); err != nil {
		return false, err
	}
	swept, err := d.store.Sweep(ctx, overdue)
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

// countBacklog counts the waiting events for the metrics.
func (d *dispatcher) countBacklog(ctx context.Context) (more bool, err error) {
	pending, err := d.outbox.PendingWork(ctx)
	if err != nil {
		return false, err
	}
	var total outbox.Backlog
	var overdueSession time.Duration
	for _, work := range pending {
		backlog, err := d.outbox.Backlog(ctx, work.Bucket, d.blocked(work.Bucket)...)
		if err != nil {
			return false, err
		}
		total.Due += backlog.Due
		total.Dead += backlog.Dead
		total.Overdue = max(total.Overdue, backlog.Overdue)
		overdueSession = max(overdueSession, work.Overdue)
	}
	d.metrics.dueEvents.Set(float64(total.Due))
	d.metrics.deadLetters.Set(float64(total.Dead))
	d.metrics.overdueEvent.Set(total.Overdue.Seconds())
	d.metrics.overdueSession.Set(overdueSession.Seconds())
	return false, nil
}
