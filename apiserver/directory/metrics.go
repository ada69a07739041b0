package directory

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of the feeds, by kind of object: key or merchant.
type metrics struct {
	skipped  *prometheus.GaugeVec
	refusals *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) metrics {
	factory := promauto.With(registerer)
	return metrics{
		skipped: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "merchant_operator_directory_undecodable_objects",
			Help: "Published objects that are skipped now because they cannot be decoded; the log has their names.",
		}, []string{"kind"}),
		refusals: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_directory_undecodable_objects_total",
			Help: "Versions of published objects that could not be decoded.",
		}, []string{"kind"}),
	}
}

// registerSizes counts what is in the index at the time of asking.
func (d *Directory) registerSizes(registerer prometheus.Registerer) {
	for label, k := range map[string]func() int{
		"key":      func() int { return len(d.index.keys) },
		"merchant": func() int { return len(d.index.merchants) },
	} {
		promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "merchant_operator_directory_objects",
			Help:        "Published objects in the directory.",
			ConstLabels: prometheus.Labels{"kind": label},
		}, func() float64 {
			d.mu.RLock()
			defer d.mu.RUnlock()
			return float64(k())
		})
	}
}
