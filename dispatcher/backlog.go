package dispatcher

import (
	"context"

	"github.com/merchant-operator/merchant-operator/internal/store"
)

// countBacklog counts what waits, and for how long it has, for the metrics.
func (d *dispatcher) countBacklog(ctx context.Context) (more bool, err error) {
	outlooks, err := d.store.Look(ctx)
	if err != nil {
		return false, err
	}
	var total store.Backlog
	var longest store.Overdue
	for _, outlook := range outlooks {
		backlog, err := d.store.Backlog(ctx, outlook.Bucket)
		if err != nil {
			return false, err
		}
		total.Due += backlog.Due
		total.Dead += backlog.Dead
		total.Troubled += backlog.Troubled
		longest.Event = max(longest.Event, outlook.Overdue.Event)
		longest.Session = max(longest.Session, outlook.Overdue.Session)
	}
	d.metrics.due.Set(float64(total.Due))
	d.metrics.dead.Set(float64(total.Dead))
	d.metrics.disabled.Set(float64(total.Troubled))
	d.metrics.overdueEvent.Set(longest.Event.Seconds())
	d.metrics.overdueSession.Set(longest.Session.Seconds())
	return false, nil
}
