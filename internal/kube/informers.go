package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Source is what an informer watches, and where the objects go.
type Source struct {
	// Name of the informer in metrics and logs.
	Name string
	// Resource is the plural name in the Kubernetes API, Object an empty object of the type.
	Resource string
	Object   runtime.Object
	// Label is the value of published.Label of the objects.
	Label string
	Index Index
}

// Options of Informers; all are required.
type Options struct {
	Log *slog.Logger
	// Registerer takes the metrics of the informers.
	Registerer prometheus.Registerer
	// Now is the clock of Age.
	Now func() time.Time
}

// Informers watch several kinds of objects for one index.
type Informers struct {
	informers []*Informer
	synced    chan struct{}
}

// NewInformers returns informers that Watch fills.
func NewInformers(options Options, sources ...Source) *Informers {
	s := &Informers{synced: make(chan struct{})}
	var missing atomic.Int32
	missing.Store(int32(len(sources))) //nolint:gosec // there is a handful
	listed := func() {
		if missing.Add(-1) == 0 {
			close(s.synced)
		}
	}
	metrics := newMetrics(options.Registerer)
	for _, source := range sources {
		s.informers = append(s.informers, newInformer(source, metrics, options, listed))
	}
	return s
}

// Synced is closed once the first list of every informer is in the index.
func (s *Informers) Synced() <-chan struct{} { return s.synced }

// Informer returns the informer of that name, or nil.
func (s *Informers) Informer(name string) *Informer {
	for _, f := range s.informers {
		if f.source.Name == name {
			return f
		}
	}
	return nil
}

// Age is the time since the last event, bookmark or list of the oldest watch, or since the start. An idle watch gets a bookmark
// about once a minute.
func (s *Informers) Age() time.Duration {
	var oldest time.Duration
	for _, f := range s.informers {
		oldest = max(oldest, f.age())
	}
	return oldest
}

// Watch keeps the index current with the published objects of the credentials namespace until ctx ends. It retries while the
// Kubernetes API is unavailable. The client is for the core API group. Call it once at a time.
func (s *Informers) Watch(ctx context.Context, client cache.Getter, credentialsNamespace string) {
	var reflectors sync.WaitGroup
	shared := newAttempts()
	for _, f := range s.informers {
		labelled := cache.NewFilteredListWatchFromClient(client, f.source.Resource, credentialsNamespace,
			func(options *metav1.ListOptions) { options.LabelSelector = published.Label + "=" + f.source.Label })
		reflectors.Go(func() { keepCurrent(ctx, labelled, f, shared) })
	}
	reflectors.Wait()
}

// keepCurrent keeps one informer current until ctx ends.
func keepCurrent(ctx context.Context, source cache.ListerWatcher, into *Informer, shared *attempts) {
	reflector := cache.NewReflectorWithOptions(retrying(source, shared), into.source.Object, into, cache.ReflectorOptions{
		Name: "directory", Backoff: new(retryDelays()),
	})
	// client-go takes its logger from the context.
	reflector.RunWithContext(klog.NewContext(ctx, logr.FromSlogHandler(into.log.Handler())))
}

// metrics of the informers, by name.
type metrics struct {
	skipped      *prometheus.GaugeVec
	decodeErrors *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) metrics {
	factory := promauto.With(registerer)
	return metrics{
		skipped: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "merchant_operator_directory_undecodable_objects",
			Help: "Published objects that are skipped because they cannot be decoded. The log has their names.",
		}, []string{"kind"}),
		decodeErrors: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_directory_undecodable_objects_total",
			Help: "Versions of published objects that could not be decoded.",
		}, []string{"kind"}),
	}
}

// Index holds the decoded objects of one kind. An informer calls its methods one at a time.
type Index interface {
	// Decode decodes an object. A whole list is decoded before the first Put, so the record should hold only what the index
	// keeps. An error never quotes the object. With published.ErrNewerVersion the record may have what every version can read.
	Decode(object metav1.Object) (record any, err error)
	// Put stores a record under the name. An error means that the index cannot use it; it never quotes it.
	Put(name string, record any) error
	// Delete removes the record of the name, if there is one.
	Delete(name string)
	// Invalid is called in place of Put for an object that cannot be decoded.
	Invalid(name string)
	// Newer is called in place of Put for an object that a newer program wrote, with what Decode returned.
	Newer(name string, record any)
	// Names returns the names of all records.
	Names() []string
}

// IndexFuncs is an Index of objects O with records R. InvalidFunc and NewerFunc are optional.
type IndexFuncs[O metav1.Object, R any] struct {
	DecodeFunc func(O) (R, error)
	PutFunc    func(name string, record R) error
	DeleteFunc func(name string)
	NamesFunc  func() []string
	// InvalidFunc: nil calls DeleteFunc.
	InvalidFunc func(name string)
	// NewerFunc: nil does as for an invalid object.
	NewerFunc func(name string, record R)
}

// Decode calls DecodeFunc.
func (f IndexFuncs[O, R]) Decode(object metav1.Object) (any, error) {
	typed, ok := object.(O)
	if !ok {
		return nil, fmt.Errorf("%w: object is a %T", published.ErrInvalid, object)
	}
	return f.DecodeFunc(typed)
}

// Put calls PutFunc.
func (f IndexFuncs[O, R]) Put(name string, record any) error {
	typed, ok := record.(R)
	if !ok {
		return fmt.Errorf("%w: record is a %T", published.ErrInvalid, record)
	}
	return f.PutFunc(name, typed)
}

// Delete calls DeleteFunc.
func (f IndexFuncs[O, R]) Delete(name string) { f.DeleteFunc(name) }

// Invalid calls InvalidFunc, or DeleteFunc.
func (f IndexFuncs[O, R]) Invalid(name string) {
	if f.InvalidFunc == nil {
		f.DeleteFunc(name)
		return
	}
	f.InvalidFunc(name)
}

// Newer calls NewerFunc, or Invalid.
func (f IndexFuncs[O, R]) Newer(name string, record any) {
	typed, ok := record.(R)
	if f.NewerFunc == nil || !ok {
		f.Invalid(name)
		return
	}
	f.NewerFunc(name, typed)
}

// Names calls NamesFunc.
func (f IndexFuncs[O, R]) Names() []string { return f.NamesFunc() }
