package apikeys

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Metrics are what this package counts.
type Metrics struct {
	rotations *prometheus.CounterVec
}

// NewMetrics registers the metrics, or takes those up that an earlier operator in this process has
// registered.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	rotations := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_key_rotations_total",
		Help: "API keys issued, by cause.",
	}, []string{"cause"})
	if err := registry.Register(rotations); err != nil {
		var registered prometheus.AlreadyRegisteredError
		if !errors.As(err, &registered) {
			return nil, fmt.Errorf("register the metrics of keys: %w", err)
		}
		existing, ok := registered.ExistingCollector.(*prometheus.CounterVec)
		if !ok {
			return nil, fmt.Errorf("register the metrics of keys: %w", err)
		}
		rotations = existing
	}
	for _, cause := range []v1alpha1.RotationCause{v1alpha1.RotationInitial, v1alpha1.RotationTrigger, v1alpha1.RotationSchedule} {
		rotations.WithLabelValues(string(cause)) // from 0, so that the first is seen as a rise
	}
	return &Metrics{rotations: rotations}, nil
}

func (m *Metrics) rotated(cause v1alpha1.RotationCause) {
	m.rotations.WithLabelValues(string(cause)).Inc()
}
