package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/ops"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// Run dispatches until ctx ends, then drains: it takes nothing more, finishes the attempts under way and hands back
// what has not begun. It returns nil after a clean drain, and an error when it could not start, when the listener
// failed, or when attempts had to be cut off.
func Run(ctx context.Context, options Options) error {
	if err := options.Validate(); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	tracer, stopTracing, err := tracing.Start(ctx, "dispatcher", options.Spans, options.Log)
	if err != nil {
		return fmt.Errorf("start tracing: %w", err)
	}
	defer stopTracing()
	registry := ops.NewRegistry()
	redis, err := store.Open(store.Options{URL: options.RedisURL, Timeout: redisTimeout, Log: options.Log, Registerer: registry, Tracer: tracer})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer func() { _ = redis.Close() }()
	client, err := delivery.New(delivery.Options{AllowHTTP: options.AllowHTTP, AllowCIDRs: options.AllowCIDRs})
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	defer client.Close()
	cluster, err := kube.Load(options.Kubeconfig, "dispatcher")
	if err != nil {
		return err
	}
	core, err := kube.Client(cluster)
	if err != nil {
		return err
	}
	holder, err := holderName()
	if err != nil {
		return err
	}
	ctrllog.SetLogger(logr.FromSlogHandler(options.Log.Handler())) // of the whole process; the reporter's client logs what the API server warns of
	reporter, err := newKubeReporter(cluster, holder)
	if err != nil {
		return err
	}

	heard := newRotations()
	index := endpoints.New(endpoints.Options{Log: options.Log, Registerer: registry, Rotated: heard.heard, Now: time.Now})
	r := role{
		options: options,
		phase:   ops.NewPhase(),
		synced:  index.Synced(),
		dispatcher: &dispatcher{
			options: options, store: redis, index: index, sender: client, reporter: reporter,
			rotations: heard, metrics: newMetrics(registry), tracer: tracer, holder: holder, now: time.Now,
		},
		failed: make(chan error, 1),
	}
	exposed := ops.Replica{Phase: r.phase, Redis: redis, Age: index.Age, MaxAge: store.OverrideLifetime}
	server, err := ops.Serve(ctx, options.Ops, exposed, registry, core, options.Log, r.failed)
	if err != nil {
		return err
	}
	defer server.Close() // probes are answered to the end

	stopWatching := watch(ctx, index, core.CoreV1().RESTClient(), options.CredentialsNamespace)
	defer stopWatching()
	return r.serve(ctx)
}

// holderName names this process for people: in its leases and in its events.
func holderName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this dispatcher: %w", err)
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid()), nil
}

// watch fills the index until the returned function is called. It outlives ctx, for events are still delivered while
// the dispatcher drains.
func watch(ctx context.Context, index *endpoints.Endpoints, core cache.Getter, namespace string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watches sync.WaitGroup
	watches.Go(func() { index.Watch(ctx, core, namespace) })
	return func() {
		cancel()
		watches.Wait()
	}
}

// role is the life of a dispatcher.
type role struct {
	options    Options
	phase      *ops.Phase
	synced     <-chan struct{}
	dispatcher *dispatcher
	failed     chan error // receives what ended the listener before its time
}

// serve takes no event before the index has been filled: until then it could not tell who wants it.
func (r role) serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	select {
	case <-r.synced:
	case err := <-r.failed:
		return err
	case <-ctx.Done():
		return nil
	}
	answered := make(chan error, 1)
	go func() { answered <- r.dispatcher.store.Await(ctx, r.options.Log) }()
	select {
	case err := <-answered:
		if err != nil {
			return err
		}
	case err := <-r.failed:
		return err
	}
	r.phase.Set(ops.Serving)
	context.AfterFunc(ctx, func() {
		r.phase.Set(ops.Draining)
		r.options.Log.Info("draining")
	})
	ended := make(chan error, 1)
	go func() { ended <- r.dispatcher.run(ctx) }()
	select {
	case err := <-ended:
		return err
	case err := <-r.failed:
		stop()
		return errors.Join(err, <-ended)
	}
}
