package live

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Reason is why a session was read.
type Reason string

// The reasons. A Reread finds a change whose message was lost.
const (
	Message Reason = "message"
	Expiry  Reason = "expiry"
	Reread  Reason = "reread"
)

// The limits that refuse a watch.
const (
	limitReplica = "replica"
	limitAddress = "address"
	limitAccount = "account"
	limitTenant  = "namespace"
)

type metrics struct {
	refused *prometheus.CounterVec
	changes *prometheus.CounterVec
	lost    prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, h *Hub) *metrics {
	factory := promauto.With(registerer)
	m := &metrics{
		refused: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_streams_refused_total",
			Help: "Streams and long polls with response 503, by limit: of this replica, of the client address, of the namespace of the Merchant, or of the account that waits for its feed.",
		}, []string{"limit"}),
		changes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_stream_changes_total",
			Help: "Ends of sessions sent to streams and long polls, by source: a message of Redis, the session's expiry, or a reread.",
		}, []string{"source"}),
		lost: factory.NewCounter(prometheus.CounterOpts{
			Name: "merchant_operator_redis_subscriptions_lost_total",
			Help: "Subscriptions to a bucket of sessions that failed or were lost. Each is tried again.",
		}),
	}
	// Counters start at 0, so that rate() sees the first increase.
	for _, limit := range []string{limitReplica, limitAddress, limitAccount, limitTenant} {
		m.refused.WithLabelValues(limit)
	}
	for _, source := range []Reason{Message, Expiry, Reread} {
		m.changes.WithLabelValues(string(source))
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "merchant_operator_streams",
		Help: "Open streams and long polls.",
	}, func() float64 {
		h.mu.Lock()
		defer h.mu.Unlock()
		return float64(h.open)
	})
	for state, is := range map[string]func(*bucketState) bool{
		"wanted": func(b *bucketState) bool { return b.wanted },
		"active": func(b *bucketState) bool { return b.wanted && b.active },
	} {
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "merchant_operator_redis_subscriptions",
			Help:        "Buckets of sessions whose messages this replica wants, and those for which Redis has confirmed that (active).",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return h.countBuckets(is) })
	}
	return m
}

func (h *Hub) countBuckets(is func(*bucketState) bool) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := 0
	for i := range h.buckets {
		if is(&h.buckets[i]) {
			count++
		}
	}
	return float64(count)
}
