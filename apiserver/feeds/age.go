package feeds

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Age is how long ago the Kubernetes API was last heard of by the watch that is furthest behind. An
// idle watch hears a bookmark about once a minute. It counts from the start before the first list.
func (s *Set) Age() time.Duration {
	var oldest time.Duration
	for _, f := range s.feeds {
		oldest = max(oldest, f.age())
	}
	return oldest
}

// UpdateResourceVersion is called with every event and every bookmark of the watch.
func (f *Feed) UpdateResourceVersion(string) { f.hear() }

func (f *Feed) hear() { f.heard.Store(f.now().UnixNano()) }

func (f *Feed) age() time.Duration { return time.Duration(f.now().UnixNano() - f.heard.Load()) }

func (f *Feed) registerAge(registerer prometheus.Registerer) {
	promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "merchant_operator_directory_age_seconds",
		Help:        "Time since the watch last heard of the Kubernetes API; an idle watch hears about once a minute.",
		ConstLabels: prometheus.Labels{"kind": f.source.Name},
	}, func() float64 { return f.age().Seconds() })
}
