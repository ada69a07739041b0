package status

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are those of endpoints in Redis, the same on every dispatcher: aggregate them with max, not sum.
type metrics struct {
	disabledEndpoints  prometheus.Gauge
	unhealthyEndpoints *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	const namespace, subsystem = "merchant_operator", "webhook"
	factory := promauto.With(registerer)
	m := &metrics{
		disabledEndpoints: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "endpoints_disabled", Help: "Disabled endpoints, which get no events.",
		}),
		unhealthyEndpoints: factory.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "endpoints_unhealthy",
			Help: "Endpoints that fail or are disabled, by reason of the condition WebhookHealthy.",
		}, []string{"reason"}),
	}
	m.set(nil)
	return m
}

// set sets the gauges, given the numbers of unhealthy endpoints by reason.
func (m *metrics) set(unhealthy map[string]int) {
	for _, reason := range unhealthyReasons() {
		m.unhealthyEndpoints.WithLabelValues(reason).Set(float64(unhealthy[reason]))
	}
	m.disabledEndpoints.Set(float64(unhealthy[reasonEndpointGone] + unhealthy[reasonEndpointDisabled]))
}
