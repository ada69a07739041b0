package store

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/store/link"
)

// metrics of the scripts, by operation. Nil metrics count nothing.
type metrics struct {
	durations *prometheus.HistogramVec
	errors    *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	if registerer == nil {
		return nil
	}
	factory := promauto.With(registerer)
	return &metrics{
		durations: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "merchant_operator_redis_operation_duration_seconds",
			Help:    "Time until Redis had answered an operation, or failed to; the wait for a connection is part of it.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .3, 1, 5},
		}, []string{"operation"}),
		errors: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_redis_operation_errors_total",
			Help: "Operations that Redis did not answer as it should, by cause: timeout, connection, answer, replicas or cancelled.",
		}, []string{"operation", "cause"}),
	}
}

func (m *metrics) observe(operation string, took time.Duration, cause string) {
	if m == nil {
		return
	}
	m.durations.WithLabelValues(operation).Observe(took.Seconds())
	if cause != "" {
		m.errors.WithLabelValues(operation, cause).Inc()
	}
}

// causeOf sorts the client's errors; empty: none. What Redis said is in the log of whoever asked.
func causeOf(err error) string {
	if err == nil {
		return ""
	}
	_, answered := errors.AsType[redis.Error](err)
	switch {
	case answered:
		return "answer"
	case errors.Is(err, link.ErrNotCopied):
		return "replicas"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout):
		return "timeout"
	}
	return "connection"
}
