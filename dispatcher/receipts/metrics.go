package receipts

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a Sender. The gauge is of Redis, and so the same on every dispatcher: aggregate it with max, not sum.
type metrics struct {
	attempts *prometheus.CounterVec
	duration prometheus.Histogram
	ended    *prometheus.CounterVec
	pending  prometheus.Gauge
}

// Outcomes of a receipt.
const (
	outcomeSent    = "sent"
	outcomeRefused = "refused"
	outcomeExpired = "expired"
	outcomeDropped = "dropped"
)

func newMetrics(registerer prometheus.Registerer) *metrics {
	const namespace, subsystem = "merchant_operator", "receipt"
	factory := promauto.With(registerer)
	m := &metrics{
		attempts: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "attempts_total",
			Help: "Tries to send a receipt, by result: sent, refused (SMTP 5xx about this mail), temporary (SMTP 4xx), sender_refused (any other SMTP 5xx), unavailable (no connection, TLS or answer).",
		}, []string{"result"}),
		duration: factory.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "attempt_duration_seconds", Help: "Duration of tries to send a receipt.",
			Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		ended: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "receipts_total",
			Help: "Finished receipts, by outcome: sent, refused (by the mail server), expired (not sent within three days), dropped (the session is gone or has no address).",
		}, []string{"outcome"}),
		pending: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "receipts_pending", Help: "Receipts in Redis that wait to be sent, now or later.",
		}),
	}
	for _, result := range results() { // else rate() would miss the first of each
		m.attempts.WithLabelValues(result)
	}
	for _, outcome := range []string{outcomeSent, outcomeRefused, outcomeExpired, outcomeDropped} {
		m.ended.WithLabelValues(outcome)
	}
	return m
}

func (m *metrics) attempted(result string, duration time.Duration) {
	m.attempts.WithLabelValues(result).Inc()
	m.duration.Observe(duration.Seconds())
}
