package apikeys

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Metrics are the metrics of this package.
type Metrics struct {
	rotations *prometheus.CounterVec
	lost      prometheus.Counter
}

// NewMetrics registers the metrics, or returns those that an earlier operator in this process has registered.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	rotations, err := register(registry, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_key_rotations_total",
		Help: "API keys issued, by cause.",
	}, []string{"cause"}))
	if err != nil {
		return nil, err
	}
	lost, err := register(registry, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "merchant_operator_keys_lost_total",
		Help: "API keys whose published record was lost.",
	}))
	if err != nil {
		return nil, err
	}
	for _, cause := range []v1alpha1.RotationCause{v1alpha1.RotationInitial, v1alpha1.RotationTrigger, v1alpha1.RotationSchedule, v1alpha1.RotationRecovery} {
		rotations.WithLabelValues(string(cause)) // from 0, so that the first is seen as a rise
	}
	return &Metrics{rotations: rotations, lost: lost}, nil
}

func register[C prometheus.Collector](registry prometheus.Registerer, collector C) (C, error) {
	err := registry.Register(collector)
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := registered.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	if err != nil {
		return collector, fmt.Errorf("register the metrics of keys: %w", err)
	}
	return collector, nil
}

func (m *Metrics) rotated(cause v1alpha1.RotationCause) {
	m.rotations.WithLabelValues(string(cause)).Inc()
}
