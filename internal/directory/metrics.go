package directory

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// registerSizes counts what is in the index at the time of asking.
func (d *Directory) registerSizes(registerer prometheus.Registerer) {
	for label, k := range map[string]func() int{
		"key":      func() int { return len(d.index.keys) },
		"merchant": func() int { return len(d.index.merchants) },
	} {
		promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "merchant_operator_directory_objects",
			Help:        "Published objects in the directory.",
			ConstLabels: prometheus.Labels{"kind": label},
		}, func() float64 {
			d.mu.RLock()
			defer d.mu.RUnlock()
			return float64(k())
		})
	}
}
