// Package dispatcher expires sessions and delivers webhook events. Any number of dispatchers share the work through Redis,
// without a leader; the events of one that crashes are due again for the others. See docs/design/webhooks.md.
package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/ops"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// Run dispatches until ctx ends, then drains: it leases nothing more, finishes the attempts in progress and releases the
// other events. It returns nil after a clean drain, and an error if it could not start, if the listener failed, or if
// attempts had to be aborted.
func Run(ctx context.Context, options Options) error {
	if err := options.Validate(); err != nil {
		return err
	}
	tracer, stopTracing, err := tracing.Start(ctx, "dispatcher", options.Spans, options.Log)
	if err != nil {
		return fmt.Errorf("start tracing: %w", err)
	}
	defer stopTracing()
	registry := ops.NewRegistry()
	connection, err := redis.Open(redis.Options{
		URL: options.RedisURL, Timeout: redisTimeout, Log: options.Log, Registerer: registry, Tracer: tracer,
	})
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	sessions, err := store.New(connection, store.Options{})
	if err != nil {
		return err
	}
	client, err := delivery.New(delivery.Options{AllowHTTP: options.AllowHTTP, AllowCIDRs: options.AllowCIDRs})
	if err != nil {
		return fmt.Errorf("--webhook-allow-cidrs: %w", err)
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
	identity, err := newIdentity()
	if err != nil {
		return err
	}
	ctrllog.SetLogger(logr.FromSlogHandler(options.Log.Handler())) // for warnings of the API server
	reporter, err := newKubeReporter(cluster, identity, options.CredentialsNamespace)
	if err != nil {
		return err
	}

	rotations, changes := newRotations(), newChanges()
	index := endpoints.New(endpoints.Options{
		Log: options.Log, Registerer: registry, Rotated: rotations.add, Changed: changes.add, Now: time.Now,
	})
	r := role{
		options: options,
		phase:   ops.NewPhase(),
		synced:  index.Synced(),
		dispatcher: &dispatcher{
			options: options, redis: connection, outbox: outbox.New(connection), store: sessions, index: index, sender: client, reporter: reporter,
			rotations: rotations, changes: changes, metrics: newMetrics(registry), tracer: tracer, identity: identity, now: time.Now,
		},
		failed: make(chan error, 1),
	}
	health := ops.Health{Phase: r.phase, Redis: connection, Age: index.Age, MaxAge: store.OverrideLifetime}
	server, err := ops.Serve(ctx, options.Ops, health, registry, core, options.Log, r.failed)
	if err != nil {
		return err
	}
	defer server.Close() // answers probes to the end

	stopWatching := ops.Background(ctx, func(ctx context.Context) {
		index.Watch(ctx, core.CoreV1().RESTClient(), options.CredentialsNamespace)
	})
	defer stopWatching()
	return r.serve(ctx)
}

// newIdentity names this process in its leases and events.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("get the host name: %w", err)
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid()), nil
}

// role starts and stops a dispatcher.
type role struct {
	options    Options
	phase      *ops.Phase
	synced     <-chan struct{}
	dispatcher *dispatcher
	failed     chan error // receives the error of the listener
}

// serve leases no event until the index is filled, because it could not decide about it.
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
	if err := ops.Await(r.failed, func() error { return r.dispatcher.redis.Await(ctx, r.options.Log) }); err != nil {
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
