package console

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a console. No label contains a person or a merchant.
type metrics struct {
	requests *prometheus.HistogramVec
	actions  *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	m := &metrics{
		requests: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "merchant_operator_console_request_duration_seconds", Help: "Duration of requests to the console, by status code.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"code"}),
		actions: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_console_actions_total",
			Help: "What people did in the console, by action and result: done or failed.",
		}, []string{"action", "result"}),
	}
	for _, action := range actions() {
		m.actions.WithLabelValues(action, actionDone)
		m.actions.WithLabelValues(action, actionFailed)
	}
	return m
}
