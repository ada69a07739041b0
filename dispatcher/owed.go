package dispatcher

import (
	"context"
	"time"
)

// owedAges are those of payments to be refunded, as a metric counts them: how long they have waited at least.
var owedAges = []struct {
	label string
	age   time.Duration
}{{"72h", 72 * time.Hour}, {"24h", 24 * time.Hour}, {"1h", time.Hour}, {"0h", 0}}

// countOwed counts the payments that rails have to refund, for the metrics.
func (d *dispatcher) countOwed(ctx context.Context) (more bool, err error) {
	ages := make([]time.Duration, len(owedAges))
	for i, owed := range owedAges {
		ages[i] = owed.age
	}
	counts, err := d.store.Owed(ctx, ages)
	if err != nil {
		return false, err
	}
	for i, owed := range owedAges {
		d.metrics.refundsOwed.WithLabelValues(owed.label).Set(float64(counts[i]))
	}
	return false, nil
}
