package webhook

import (
	"context"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

// sweep expires sessions of a bucket whose time is over and that nobody has read since.
func (d *dispatcher) sweep(ctx context.Context, bucket session.Bucket) (more bool, err error) {
	swept, err := d.store.Sweep(ctx, bucket, sweepBatch)
	if err != nil {
		return false, err
	}
	d.metrics.expired.Add(float64(swept.Expired))
	if swept.Expired > 0 {
		d.metrics.expiryLag.Observe(swept.Oldest.Seconds())
	}
	if swept.Corrupt > 0 {
		d.options.Log.Error("sessions that cannot be read cannot expire", "bucket", bucket, "sessions", swept.Corrupt)
	}
	return swept.More, nil
}

// countBacklog counts what waits, for the metrics.
func (d *dispatcher) countBacklog(ctx context.Context) (more bool, err error) {
	var total store.Backlog
	for i := range session.Buckets {
		backlog, err := d.store.Backlog(ctx, session.Bucket(i))
		if err != nil {
			return false, err
		}
		total.Due += backlog.Due
		total.Dead += backlog.Dead
		total.Troubled += backlog.Troubled
	}
	d.metrics.due.Set(float64(total.Due))
	d.metrics.dead.Set(float64(total.Dead))
	d.metrics.disabled.Set(float64(total.Troubled))
	return false, nil
}
