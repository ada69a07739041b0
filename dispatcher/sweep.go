package dispatcher

import (
	"context"

	"github.com/merchant-operator/merchant-operator/internal/session"
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
