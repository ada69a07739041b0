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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Source says which objects a informer takes.
type Source struct {
	// Name tells the informers of a set apart in metrics and logs.
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
	// Registerer takes the metrics of the informers.
	Registerer prometheus.Registerer
	// Now is the clock that Age goes by.
	Now func() time.Time
}

// Informers fill one index.
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

// Synced is closed once all that was published when Watch began is in the index.
func (s *Informers) Synced() <-chan struct{} { return s.synced }

// Informer returns the informer of that name, nil if there is none.
func (s *Informers) Informer(name string) *Informer {
	for _, f := range s.informers {
		if f.source.Name == name {
			return f
		}
	}
	return nil
}

// Age is how long ago the Kubernetes API was last heard of by the watch that is furthest behind. An
// idle watch hears a bookmark about once a minute. It counts from the start before the first list.
func (s *Informers) Age() time.Duration {
	var oldest time.Duration
	for _, f := range s.informers {
		oldest = max(oldest, f.age())
	}
	return oldest
}

// Watch takes the published objects of the credentials namespace in, and every change of them, until
// ctx ends. While the Kubernetes API is away it keeps trying. The client is one of the core API
// group. One Watch at a time.
func (s *Informers) Watch(ctx context.Context, client cache.Getter, credentialsNamespace string) {
	var reflectors sync.WaitGroup
	for _, f := range s.informers {
		labelled := cache.NewFilteredListWatchFromClient(client, f.source.Resource, credentialsNamespace,
			func(options *metav1.ListOptions) { options.LabelSelector = published.Label + "=" + f.source.Label })
		reflectors.Go(func() { reflect(ctx, labelled, f) })
	}
	reflectors.Wait()
}

// reflect keeps a informer current until ctx ends.
func reflect(ctx context.Context, source cache.ListerWatcher, into *Informer) {
	reflector := cache.NewReflectorWithOptions(source, into.source.Object, into, cache.ReflectorOptions{
		Name: "directory",
		// Gentle to a struggling API server, yet current within seconds of its return.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 6, Cap: 10 * time.Second},
	})
	// client-go finds its logger in the context.
	reflector.RunWithContext(klog.NewContext(ctx, logr.FromSlogHandler(into.log.Handler())))
}

// metrics of the informers, by kind of object: key or merchant.
type metrics struct {
	skipped  *prometheus.GaugeVec
	refusals *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) metrics {
	factory := promauto.With(registerer)
	return metrics{
		skipped: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "merchant_operator_directory_undecodable_objects",
			Help: "Published objects that are skipped now because they cannot be decoded; the log has their names.",
		}, []string{"kind"}),
		refusals: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_directory_undecodable_objects_total",
			Help: "Versions of published objects that could not be decoded.",
		}, []string{"kind"}),
	}
}

// Kind puts published objects of one kind into an index and takes them out. Its methods are called one
// at a time.
type Kind interface {
	// Read decodes an object. Of a long list everything is read before anything is put in, so what it returns
	// should be no more than what the index keeps. An error says that the object cannot be decoded; it
	// never quotes what the object holds.
	Read(object metav1.Object) (record any, err error)
	// Put takes in what was read, in place of what there is under the name. An error says that the index
	// cannot use it; it quotes nothing of it either.
	Put(name string, record any) error
	// Drop takes out what there is under the name, if anything.
	Drop(name string)
	// Spoil is Drop for an object that is there and cannot be decoded.
	Spoil(name string)
	// Defer is for an object that a newer program wrote: what is known of it holds until it can be read.
	Defer(name string)
	// Names are those of everything that is in.
	Names() []string
}

// Decoded is the Kind of objects of type O that decode to a record R. Every field but Spoilt is required.
type Decoded[O metav1.Object, R any] struct {
	Decode func(O) (R, error)
	// Take puts the record of an object of that name into the index; an error says that the index cannot use it.
	Take func(name string, record R) error
	// Forget takes out what there is under the name of an object, and All are the names there are.
	Forget func(name string)
	All    func() []string
	// Spoilt is called in place of Forget when an object is there and cannot be decoded; nil: that makes no difference.
	Spoilt func(name string)
	// Newer is called in place of Spoilt when a newer program wrote the object; nil: that makes no difference.
	Newer func(name string)
}

// Read decodes an object.
func (d Decoded[O, R]) Read(object metav1.Object) (any, error) {
	typed, ok := object.(O)
	if !ok {
		return nil, fmt.Errorf("%w: it is a %T", published.ErrInvalid, object)
	}
	return d.Decode(typed)
}

// Put has a record taken in.
func (d Decoded[O, R]) Put(name string, record any) error {
	typed, ok := record.(R)
	if !ok {
		return fmt.Errorf("%w: it was read as a %T", published.ErrInvalid, record)
	}
	return d.Take(name, typed)
}

// Drop has it forgotten.
func (d Decoded[O, R]) Drop(name string) { d.Forget(name) }

// Spoil has it forgotten, or remembered as one that is there.
func (d Decoded[O, R]) Spoil(name string) {
	if d.Spoilt == nil {
		d.Forget(name)
		return
	}
	d.Spoilt(name)
}

// Defer has it kept, or spoils it.
func (d Decoded[O, R]) Defer(name string) {
	if d.Newer == nil {
		d.Spoil(name)
		return
	}
	d.Newer(name)
}

// Names are all there are.
func (d Decoded[O, R]) Names() []string { return d.All() }
