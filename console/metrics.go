package console

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a console. No label contains a person or a merchant.
type metrics struct {
	requests *prometheus.HistogramVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	return &metrics{
		requests: promauto.With(registerer).NewHistogramVec(prometheus.HistogramOpts{
			Name: "merchant_operator_console_request_duration_seconds", Help: "Duration of requests to the console, by status code.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"code"}),
	}
}
