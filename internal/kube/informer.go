package kube

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Informer takes what one reflector sees into the index (it is a cache.ReflectorStore), so that each
// object is held once, decoded, instead of once more in an informer. One goroutine writes at a time.
//
// Its methods return no errors: the reflector would log one together with the whole object.
type Informer struct {
	source Source
	log    *slog.Logger
	// listed is called after the first list.
	listed func()

	now   func() time.Time
	heard atomic.Int64 // when the Kubernetes API was last heard of, in Unix nanoseconds

	// undecodable objects by name, with the resourceVersion that was complained about.
	undecodable map[string]string
	skipped     prometheus.Gauge
	refusals    prometheus.Counter
}

func newInformer(source Source, m metrics, options Options, listed func()) *Informer {
	f := &Informer{
		source:      source,
		log:         options.Log.With("kind", source.Name),
		now:         options.Now,
		listed:      sync.OnceFunc(listed),
		undecodable: map[string]string{},
		skipped:     m.skipped.WithLabelValues(source.Name),
		refusals:    m.refusals.WithLabelValues(source.Name),
	}
	f.hear()
	f.registerAge(options.Registerer)
	return f
}

// Add takes a new object in.
func (f *Informer) Add(object any) error {
	f.take(f.seen(object))
	return nil
}

// Update takes a changed object in.
func (f *Informer) Update(object any) error {
	f.take(f.seen(object))
	return nil
}

// Delete drops an object.
func (f *Informer) Delete(object any) error {
	if accessor, err := meta.Accessor(object); err == nil {
		f.forget(accessor.GetName())
	}
	return nil
}

// Replace drops what is not on the list, and takes in what is: something may have taken the place of what has vanished. Each
// object is locked for on its own, so that a long list does not hold up requests.
func (f *Informer) Replace(objects []any, _ string) error {
	onList := make(map[string]bool, len(objects))
	list := make([]*seen, len(objects))
	for i, object := range objects {
		list[i] = f.seen(object)
		onList[list[i].name] = true
	}
	for _, name := range f.source.Kind.Names() {
		if !onList[name] {
			f.forget(name)
		}
	}
	for name := range f.undecodable {
		if !onList[name] {
			f.forget(name)
		}
	}
	for _, seen := range list {
		f.take(seen)
	}
	f.hear()
	f.listed()
	return nil
}

// Resync does nothing: there is nobody to tell again.
func (f *Informer) Resync() error { return nil }

// seen reads an object, unless that was done already.
func (f *Informer) seen(object any) *seen {
	if read, ok := object.(*seen); ok {
		return read
	}
	return f.see(object)
}

// take puts what was read into the index, or drops what the object said before.
func (f *Informer) take(seen *seen) {
	if seen.err == nil {
		seen.err = f.source.Kind.Put(seen.name, seen.record)
	}
	if seen.err == nil {
		f.clear(seen.name)
	} else {
		f.refuse(seen)
	}
}

// refuse drops what an object said before it could not be decoded, unless a newer program wrote it.
func (f *Informer) refuse(seen *seen) {
	if errors.Is(seen.err, published.ErrNewerVersion) {
		f.source.Kind.Defer(seen.name)
	} else {
		f.source.Kind.Spoil(seen.name)
	}
	if f.undecodable[seen.name] == seen.version { // a relist brings the same object again
		return
	}
	f.undecodable[seen.name] = seen.version
	f.skipped.Set(float64(len(f.undecodable)))
	f.refusals.Inc()
	f.log.Error("skipped a published object that cannot be decoded",
		"name", seen.name, "resourceVersion", seen.version, "error", seen.err)
}

func (f *Informer) forget(name string) {
	f.source.Kind.Drop(name)
	f.clear(name)
}

// clear ends the complaint about an object.
func (f *Informer) clear(name string) {
	delete(f.undecodable, name)
	f.skipped.Set(float64(len(f.undecodable)))
}

// UpdateResourceVersion is called with every event and every bookmark of the watch.
func (f *Informer) UpdateResourceVersion(string) { f.hear() }

func (f *Informer) hear() { f.heard.Store(f.now().UnixNano()) }

func (f *Informer) age() time.Duration { return time.Duration(f.now().UnixNano() - f.heard.Load()) }

func (f *Informer) registerAge(registerer prometheus.Registerer) {
	promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "merchant_operator_directory_age_seconds",
		Help:        "Time since the watch last heard of the Kubernetes API; an idle watch hears about once a minute.",
		ConstLabels: prometheus.Labels{"kind": f.source.Name},
	}, func() float64 { return f.age().Seconds() })
}

// seen is what is left of an object once it was read.
type seen struct {
	name, version string
	record        any
	err           error // why there is no record, or none that the index can use
}

func (f *Informer) see(object any) *seen {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return &seen{err: err} // a reflector passes nothing but objects of its type
	}
	record, err := f.source.Kind.Read(accessor)
	return &seen{name: accessor.GetName(), version: accessor.GetResourceVersion(), record: record, err: err}
}

// Transformer has the reflector read each object of a list as it arrives (cache.TransformingStore). It collects the whole
// list before it calls Replace; whole objects would then be the most memory that a replica ever needs.
func (f *Informer) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return f.see(object), nil }
}
