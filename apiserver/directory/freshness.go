package directory

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Age is how long ago the Kubernetes API was last heard of by the watch that is further behind. An
// idle watch hears a bookmark about once a minute. It counts from the start before the first list.
func (d *Directory) Age() time.Duration {
	return max(d.keyFeed.age(), d.merchantFeed.age())
}

// UpdateResourceVersion is called with every event and every bookmark of the watch.
func (f *feed) UpdateResourceVersion(string) { f.hear() }

func (f *feed) hear() { f.heard.Store(f.now().UnixNano()) }

func (f *feed) age() time.Duration { return time.Duration(f.now().UnixNano() - f.heard.Load()) }

func (f *feed) registerAge(label string, registerer prometheus.Registerer) {
	promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "merchant_operator_directory_age_seconds",
		Help:        "Time since the watch last heard of the Kubernetes API; an idle watch hears about once a minute.",
		ConstLabels: prometheus.Labels{"kind": label},
	}, func() float64 { return f.age().Seconds() })
}
