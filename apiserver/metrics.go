package apiserver

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// metrics of requests. No label has a value that a client chooses.
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
			Help: "HTTP requests in progress.",
		}),
		durations: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "merchant_operator_http_request_duration_seconds",
			Help:    "Duration of HTTP requests, by method, route and status. 499: the client disconnected.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"method", "route", "status"}),
		unauthorized: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_http_unauthorized_total",
			Help: "Requests with response 401, by reason. Clients do not see the reason.",
		}, []string{"reason"}),
		limited: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_http_rate_limited_total",
			Help: "Requests with response 429, by limit: of the merchant, of the client address, or of the rotations of an ApiKey.",
		}, []string{"limit"}),
		rotations: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_key_rotations_total",
			Help: "API keys issued, by cause of the rotation.",
		}, []string{"cause"}),
	}
	// Counters start at 0, so that rate() sees the first increase.
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

// route is the pattern that matched a request; empty for preflights and unknown paths.
func route(pattern string) string {
	if pattern == "/" {
		return ""
	}
	return pattern
}

// knownMethod limits the label values, because clients can invent methods.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions:
		return method
	}
	return "other"
}
