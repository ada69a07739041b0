package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are those of requests, of all listeners together. No label has a value that a client chooses.
type Metrics struct {
	inFlight  prometheus.Gauge
	durations *prometheus.HistogramVec
	test      *prometheus.CounterVec
	limited   *prometheus.CounterVec
}

// NewMetrics registers the metrics of requests.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	factory := promauto.With(registerer)
	m := &Metrics{
		inFlight: factory.NewGauge(prometheus.GaugeOpts{
			Name: "merchant_operator_http_requests_in_flight",
			Help: "HTTP requests in progress.",
		}),
		durations: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "merchant_operator_http_request_duration_seconds",
			Help:    "Duration of HTTP requests, by method, route and status. 499: the client disconnected. Without requests of test mode.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"method", "route", "status"}),
		test: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_http_test_requests_total",
			Help: "HTTP requests of test mode, by method, route and status. No other counter or histogram of requests has them.",
		}, []string{"method", "route", "status"}),
		limited: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_http_rate_limited_total",
			Help: "Requests with response 429, by limit: of the merchant, of the client address, of the rotations of an ApiKey, or of the sessions that a merchant creates. Without requests of test mode.",
		}, []string{"limit"}),
	}
	for _, limit := range []string{MerchantLimit, AddressLimit, RotationLimit, SessionLimit} {
		m.limited.WithLabelValues(limit) // start at 0, so that rate() sees the first increase
	}
	return m
}

// count counts a request that took so long.
func (m *Metrics) count(e *Event, r *http.Request, took time.Duration) {
	method, route, status := knownMethod(r.Method), route(r.Pattern), strconv.Itoa(e.Status())
	switch {
	case e.overload: // has a metric of its own
	case e.TestMode:
		m.test.WithLabelValues(method, route, status).Inc()
	default:
		m.durations.WithLabelValues(method, route, status).Observe(took.Seconds())
	}
	if e.limit != "" && !e.TestMode {
		m.limited.WithLabelValues(e.limit).Inc()
	}
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
