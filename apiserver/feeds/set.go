package feeds

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
)

// Source says which objects a feed takes.
type Source struct {
	// Name tells the feeds of a set apart in metrics and logs.
	Name string
	// Resource is the plural the Kubernetes API knows, Object an empty one of its type.
	Resource string
	Object   runtime.Object
	// Label is the value of published.Label that the objects have.
	Label string
	Kind  Kind
}

// Options of a set; all are required.
type Options struct {
	Log *slog.Logger
	// Registerer takes the metrics of the feeds.
	Registerer prometheus.Registerer
	// Now is the clock that Age goes by.
	Now func() time.Time
}

// Set is the feeds of one index.
type Set struct {
	feeds  []*Feed
	synced chan struct{}
}

// NewSet returns feeds that Watch fills.
func NewSet(options Options, sources ...Source) *Set {
	s := &Set{synced: make(chan struct{})}
	var missing atomic.Int32
	missing.Store(int32(len(sources))) //nolint:gosec // there is a handful
	listed := func() {
		if missing.Add(-1) == 0 {
			close(s.synced)
		}
	}
	metrics := newMetrics(options.Registerer)
	for _, source := range sources {
		s.feeds = append(s.feeds, newFeed(source, metrics, options, listed))
	}
	return s
}

// Synced is closed once all that was published when Watch began is in the index.
func (s *Set) Synced() <-chan struct{} { return s.synced }

// Feed returns the feed of that name, nil if there is none.
func (s *Set) Feed(name string) *Feed {
	for _, f := range s.feeds {
		if f.source.Name == name {
			return f
		}
	}
	return nil
}
