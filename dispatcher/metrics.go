package dispatcher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// metrics of what a dispatcher does beside deliveries. The gauges of Redis are the same on every dispatcher: aggregate them with max, not sum.
type metrics struct {
	expiredSessions prometheus.Counter
	expiryLag       prometheus.Histogram

	dueEvents, deadLetters       prometheus.Gauge
	overdueEvent, overdueSession prometheus.Gauge
	refundsOwed                  *prometheus.GaugeVec
	refundsRequested             *prometheus.GaugeVec
}

// newMetrics registers the metrics. inFlight returns how many attempts are in progress, dropped how many dead letters were dropped.
func newMetrics(registerer prometheus.Registerer, inFlight func() int, dropped func() int64) *metrics {
	const namespace, subsystem = "merchant_operator", "webhook"
	factory := promauto.With(registerer)
	gauge := func(subsystem, name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "attempts_in_flight", Help: "Delivery attempts in progress.",
	}, func() float64 { return float64(inFlight()) })
	factory.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "dead_letters_dropped_total",
		Help: "Dead letters that were dropped, the oldest first, because their merchant had too many.",
	}, func() float64 { return float64(dropped()) })
	m := &metrics{
		dueEvents:      gauge(subsystem, "due_events", "Events in Redis that wait for delivery, now or later, also those of test mode."),
		deadLetters:    gauge(subsystem, "dead_letters", "Dead letters in Redis."),
		overdueEvent:   gauge(subsystem, "overdue_seconds", "How long the oldest due event has waited for a dispatcher; 0: no event is due."),
		overdueSession: gauge("session", "overdue_seconds", "How long the oldest pending session is past its expiry; 0: none is."),
		refundsOwed: factory.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "refunds_owed",
			Help: "Payments of the last 30 days that are to be refunded and that no rail has confirmed as refunded, by how long they have waited at least.",
		}, []string{"age"}),
		refundsRequested: factory.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "refunds_requested",
			Help: "Requests of merchants for refunds, of the last 30 days, that no rail has confirmed or rejected, by how long they have waited at least.",
		}, []string{"age"}),
		expiredSessions: factory.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "sessions_expired_total", Help: "Sessions that this dispatcher expired. Sessions that a read expired are not counted.",
		}),
		expiryLag: factory.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "session", Name: "expiry_lag_seconds",
			Help:    "How long sessions were past their expiry when the dispatcher expired them, the longest of each sweep.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
		}),
	}
	for _, bin := range refundAges {
		m.refundsOwed.WithLabelValues(bin.label)
		m.refundsRequested.WithLabelValues(bin.label)
	}
	return m
}

// refundAges are the ages by which a metric counts refunds that are owed: how long they have waited at least.
var refundAges = []struct {
	label string
	age   time.Duration
}{{"168h", session.RefundOverdue}, {"72h", 72 * time.Hour}, {"24h", 24 * time.Hour}, {"1h", time.Hour}, {"0h", 0}}
