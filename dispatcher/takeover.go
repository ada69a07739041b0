package dispatcher

import (
	"context"

	"github.com/merchant-operator/merchant-operator/dispatcher/holder"
)

// freeLeases frees the leases of holders that this one removed, and leases their events. If it is killed half way, another dispatcher removes the
// holder again.
func (d *dispatcher) freeLeases(ctx, attemptCtx context.Context, from *holder.Holder) error {
	for _, orphan := range from.Orphans() {
		events := 0
		for _, bucket := range d.holders.Buckets(from) {
			freed, err := d.outbox.FreeLeases(ctx, bucket, orphan)
			if freed > 0 {
				d.startDelivery(ctx, attemptCtx, bucket)
			}
			if err != nil {
				return err
			}
			events += freed
		}
		if err := from.Forget(ctx, orphan); err != nil {
			return err
		}
		if events > 0 {
			d.log.Warn("took over the events of a dispatcher that made no heartbeat", "holder", orphan, "events", events)
		}
	}
	return nil
}
