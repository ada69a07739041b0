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

// Informer is the store of one reflector (cache.ReflectorStore) that keeps decoded records in an index, and not the objects. One
// goroutine writes at a time. Its methods return no errors: the reflector would log them with the whole object.
type Informer struct {
	source Source
	log    *slog.Logger
	// listed is called after the first list.
	listed func()

	now         func() time.Time
	lastContact atomic.Pointer[time.Time] // time of the last event, bookmark or list

	// undecodable are the resourceVersions of such objects that were logged, by name.
	undecodable  map[string]string
	skipped      prometheus.Gauge
	decodeErrors prometheus.Counter
}

func newInformer(source Source, m metrics, options Options, listed func()) *Informer {
	f := &Informer{
		source:       source,
		log:          options.Log.With("kind", source.Name),
		now:          options.Now,
		listed:       sync.OnceFunc(listed),
		undecodable:  map[string]string{},
		skipped:      m.skipped.WithLabelValues(source.Name),
		decodeErrors: m.decodeErrors.WithLabelValues(source.Name),
	}
	f.touch()
	f.registerAge(options.Registerer)
	return f
}

// Add puts a new object.
func (f *Informer) Add(object any) error {
	f.put(f.unwrap(object))
	return nil
}

// Update puts a changed object.
func (f *Informer) Update(object any) error {
	f.put(f.unwrap(object))
	return nil
}

// Delete removes an object.
func (f *Informer) Delete(object any) error {
	if accessor, err := meta.Accessor(object); err == nil {
		f.delete(accessor.GetName())
	}
	return nil
}

// Replace removes what is not on the list, then puts what is: an object may have taken the place of a removed one. The index is
// locked for each object separately, so that a long list does not delay requests.
func (f *Informer) Replace(objects []any, _ string) error {
	onList := make(map[string]bool, len(objects))
	list := make([]*item, len(objects))
	for i, object := range objects {
		list[i] = f.unwrap(object)
		onList[list[i].name] = true
	}
	for _, name := range f.source.Index.Names() {
		if !onList[name] {
			f.delete(name)
		}
	}
	for name := range f.undecodable {
		if !onList[name] {
			f.delete(name)
		}
	}
	for _, decoded := range list {
		f.put(decoded)
	}
	f.touch()
	f.listed()
	return nil
}

// Resync does nothing: there are no other handlers.
func (f *Informer) Resync() error { return nil }

// unwrap decodes an object, unless Transformer has done so.
func (f *Informer) unwrap(object any) *item {
	if read, ok := object.(*item); ok {
		return read
	}
	return f.decode(object)
}

// put puts a decoded object into the index, or skips it.
func (f *Informer) put(decoded *item) {
	if decoded.ending {
		f.delete(decoded.name)
		return
	}
	if decoded.err == nil {
		decoded.err = f.source.Index.Put(decoded.name, decoded.record)
	}
	if decoded.err == nil {
		f.clearError(decoded.name)
	} else {
		f.skip(decoded)
	}
}

// skip handles an object that cannot be decoded.
func (f *Informer) skip(decoded *item) {
	if errors.Is(decoded.err, published.ErrNewerVersion) {
		f.source.Index.Newer(decoded.name, decoded.record)
	} else {
		f.source.Index.Invalid(decoded.name)
	}
	if f.undecodable[decoded.name] == decoded.version { // a relist has the same object again
		return
	}
	f.undecodable[decoded.name] = decoded.version
	f.skipped.Set(float64(len(f.undecodable)))
	f.decodeErrors.Inc()
	f.log.Error("skipped a published object that cannot be decoded",
		"name", decoded.name, "resourceVersion", decoded.version, "error", decoded.err)
}

func (f *Informer) delete(name string) {
	f.source.Index.Delete(name)
	f.clearError(name)
}

// clearError removes an object from the undecodable ones.
func (f *Informer) clearError(name string) {
	delete(f.undecodable, name)
	f.skipped.Set(float64(len(f.undecodable)))
}

// UpdateResourceVersion is called with every event and every bookmark of the watch.
func (f *Informer) UpdateResourceVersion(string) { f.touch() }

func (f *Informer) touch() { f.lastContact.Store(new(f.now())) }

// age is the longer of two: a step back of the clock must not make an old directory young, and the clock that nobody sets stops while
// the machine is suspended.
func (f *Informer) age() time.Duration {
	last, now := *f.lastContact.Load(), f.now()
	return max(now.Sub(last), now.Round(0).Sub(last.Round(0)))
}

func (f *Informer) registerAge(registerer prometheus.Registerer) {
	promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "merchant_operator_directory_age_seconds",
		Help:        "Time since the last event from the Kubernetes API. An idle watch gets one about every minute.",
		ConstLabels: prometheus.Labels{"kind": f.source.Name},
	}, func() float64 { return f.age().Seconds() })
}

// item is an object with its decoded record.
type item struct {
	name, version string
	record        any
	err           error // why there is no usable record
	// ending: the object is being deleted, and a finalizer holds it. It counts as deleted, because an end must not wait for whoever holds it.
	ending bool
}

func (f *Informer) decode(object any) *item {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return &item{err: err} // never: a reflector passes objects of its type only
	}
	record, err := f.source.Index.Decode(accessor)
	return &item{
		name: accessor.GetName(), version: accessor.GetResourceVersion(), record: record, err: err,
		// A tombstone restricts until it is gone.
		ending: accessor.GetDeletionTimestamp() != nil && f.source.Label != published.LabelTombstone,
	}
}

// Transformer lets the reflector decode each object of a list as it arrives (cache.TransformingStore). The reflector collects
// the whole list before Replace, and undecoded objects would be the peak of a replica's memory.
func (f *Informer) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return f.decode(object), nil }
}
