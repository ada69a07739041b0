package apiserver

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// metrics of the requests. Their labels never hold what a caller chose.
type metrics struct {
	inFlight     prometheus.Gauge
	durations    *prometheus.HistogramVec
	unauthorized *prometheus.CounterVec
	limited      *prometheus.CounterVec
	rotations    *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	m := &metrics{
		inFlight: factory.NewGauge(prometheus.GaugeOpts{
			Name: "merchant_operator_http_requests_in_flight",
			Help: "Requests under way, which a drain waits for.",
		}),
		durations: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "merchant_operator_http_request_duration_seconds",
			Help:    "Time to answer a request, by method, route and status; 499 is a client that went away.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"method", "route", "status"}),
		unauthorized: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_http_unauthorized_total",
			Help: "Requests answered 401, by the reason their callers are not told.",
		}, []string{"reason"}),
		limited: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_http_rate_limited_total",
			Help: "Requests answered 429, by whose limit it was: a merchant's, that of a client address, or that of an ApiKey for rotations.",
		}, []string{"limit"}),
		rotations: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_key_rotations_total",
			Help: "API keys issued, by cause.",
		}, []string{"cause"}),
	}
	// Counters start at 0: the first of its kind would else not be seen as a rise.
	for _, reason := range unauthorizedReasons() {
		m.unauthorized.WithLabelValues(reason)
	}
	for _, limit := range []string{merchantQuota, addressQuota, rotationQuota} {
		m.limited.WithLabelValues(limit)
	}
	m.rotations.WithLabelValues(string(v1alpha1.RotationAPI))
	return m
}

func (m *metrics) observe(method, pattern string, status int, took time.Duration) {
	m.durations.WithLabelValues(knownMethod(method), route(pattern), strconv.Itoa(status)).Observe(took.Seconds())
}

// route is the pattern a request was routed by; none for preflights and what has no route.
func route(pattern string) string {
	if pattern == "/" {
		return ""
	}
	return pattern
}

// knownMethod bounds the label: anyone may invent methods.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions:
		return method
	}
	return "other"
}
