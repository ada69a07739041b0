package apikeys

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Metrics are the metrics of this package.
type Metrics struct {
	rotations *prometheus.CounterVec
	lost      prometheus.Counter
	*overlaps
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
	ends, err := register(registry, newOverlaps(time.Now))
	if err != nil {
		return nil, err
	}
	return &Metrics{rotations: rotations, lost: lost, overlaps: ends}, nil
}

// ending is an overlap that ends soon while the old key is used, or nobody knows whether it is.
type ending struct {
	at   time.Time
	used bool
}

// overlaps counts endings. It remembers them by the UID of the ApiKey, until they are over.
type overlaps struct {
	now func() time.Time

	mu      sync.Mutex
	endings map[types.UID][]ending
}

func newOverlaps(now func() time.Time) *overlaps {
	return &overlaps{now: now, endings: map[types.UID][]ending{}}
}

var overlapsDesc = prometheus.NewDesc("merchant_operator_overlaps_ending",
	"Old keys that are refused within the hour, by use: used (within two hours), or unknown.", []string{"use"}, nil)

// Describe implements prometheus.Collector.
func (*overlaps) Describe(descs chan<- *prometheus.Desc) { descs <- overlapsDesc }

// Collect implements prometheus.Collector.
func (o *overlaps) Collect(out chan<- prometheus.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	used, unknown := 0, 0
	for uid, endings := range o.endings {
		left := false
		for _, e := range endings {
			switch {
			case !o.now().Before(e.at):
				continue
			case e.used:
				used++
			default:
				unknown++
			}
			left = true
		}
		if !left {
			delete(o.endings, uid)
		}
	}
	out <- prometheus.MustNewConstMetric(overlapsDesc, prometheus.GaugeValue, float64(used), "used")
	out <- prometheus.MustNewConstMetric(overlapsDesc, prometheus.GaugeValue, float64(unknown), "unknown")
}

// overlapsEnd remembers the endings of an ApiKey; none: there are none any more.
func (o *overlaps) overlapsEnd(uid types.UID, endings []ending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(endings) == 0 {
		delete(o.endings, uid)
		return
	}
	o.endings[uid] = endings
}

func (o *overlaps) forget(uid types.UID) { o.overlapsEnd(uid, nil) }

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
