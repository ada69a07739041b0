package feeds

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
