// Package apiserver is the data plane's HTTP side: the payment session API that merchants' tills and
// payers' browsers call, and the internal and operational listeners beside it. Handlers decode, call
// the domain, encode, and return errors to one table (errors.go); routes.go shows every route. Run
// wires it all together and drains it again.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/apiserver/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/ops"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// Run serves the API until ctx ends, then drains: it turns unready, goes on serving for the drain
// delay, and finishes the requests under way. It returns nil after a clean drain, and an error when
// it could not start, when a listener failed, or when requests had to be cut off.
func Run(ctx context.Context, options Options) error {
	if err := options.Validate(); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	tracer, stopTracing, err := tracing.Start(ctx, "apiserver", options.Spans, options.Log)
	if err != nil {
		return fmt.Errorf("start tracing: %w", err)
	}
	defer stopTracing()
	registry := ops.NewRegistry()
	redis, err := store.Open(store.Options{
		URL: options.RedisURL, SessionRetention: options.SessionRetention, Log: options.Log, Registerer: registry, Tracer: tracer,
		SettlementReplicas: options.SettlementReplicas, SettlementWait: options.SettlementWait,
	})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer func() { _ = redis.Close() }()
	cluster, err := kube.Load(options.Kubeconfig, "apiserver")
	if err != nil {
		return err
	}
	core, err := kube.Client(cluster)
	if err != nil {
		return err
	}

	r := &replica{options: options, redis: redis, phase: ops.NewPhase(), registry: registry, failed: make(chan error, 3)} // of each listener
	keys := publishedKeys{secrets: core.CoreV1().Secrets(options.CredentialsNamespace), now: time.Now}
	news := newAnnouncer(redis, keys, options.Log, registry)
	index := directory.New(directory.Options{Log: options.Log, Registerer: registry, Announcer: news, Now: time.Now})
	exposed := ops.Replica{Phase: r.phase, Redis: redis, Age: index.Age, MaxAge: store.OverrideLifetime}
	opsServer, err := ops.Serve(ctx, options.Ops, exposed, registry, core, options.Log, r.failed)
	if err != nil {
		return err
	}
	defer opsServer.Close() // probes are answered to the end

	stopWatching := watch(ctx, index, news, core, options.CredentialsNamespace)
	defer stopWatching()
	select {
	case <-index.Synced():
	case err := <-r.failed:
		return err
	case <-ctx.Done():
		return nil
	}
	public, internal, err := handlers(r, redis, index, core, registry, tracer)
	if err != nil {
		return err
	}
	return r.serve(ctx, public, internal)
}

// watch fills the index, and passes its news on, until the returned function is called. It outlives
// ctx, for requests are still answered while the replica drains.
func watch(ctx context.Context, index *directory.Directory, news *announcer, core kubernetes.Interface, namespace string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watches sync.WaitGroup
	watches.Go(func() { news.run(ctx) })
	watches.Go(func() { index.Watch(ctx, core.CoreV1().RESTClient(), namespace) })
	return func() {
		cancel()
		watches.Wait()
	}
}

func handlers(r *replica, redis *store.Store, index *directory.Directory, core kubernetes.Interface,
	registry *prometheus.Registry, tracer *tracing.Tracer,
) (public, internal http.Handler, err error) {
	clients, err := clientaddr.NewResolver(r.options.TrustedProxies)
	if err != nil {
		return nil, nil, fmt.Errorf("options: %w", err)
	}
	around := edge{
		log:       r.options.Log,
		metrics:   newMetrics(registry),
		draining:  func() bool { return r.phase.Is(ops.Draining) },
		tracer:    tracer,
		accessLog: r.options.AccessLog,
		believes:  func(request *http.Request) bool { return clients.TrustsPeer(request.RemoteAddr) },
	}
	a := &api{
		edge:        around,
		directory:   index,
		store:       redis,
		keys:        publishedKeys{secrets: core.CoreV1().Secrets(r.options.CredentialsNamespace), now: time.Now},
		clients:     clients,
		publicLimit: policyOf(r.options.PublicRateLimit),
		wrongKeys:   newWrongKeys(redis),
		qrScheme:    r.options.QRScheme,
		now:         time.Now,
	}
	guard := authz.New(authz.Options{
		Tokens:   core.AuthenticationV1().TokenReviews(),
		Access:   core.AuthorizationV1().SubjectAccessReviews(),
		Verb:     "post",
		Path:     settlementPath,
		Audience: r.options.RailAudience,
		Lifetime: r.options.RailVerdictLifetime,
		Now:      time.Now,
		Log:      r.options.Log,
	})
	around.believes = func(*http.Request) bool { return true } // who reaches the internal listener is of the platform
	return a.publicHandler(), newRails(around, guard, redis, registry).internalHandler(), nil
}

// replica is this process with its listeners.
type replica struct {
	options  Options
	redis    *store.Store
	phase    *ops.Phase
	registry *prometheus.Registry
	failed   chan error // receives what ended a listener before its time
}

// serve listens for requests until ctx ends, and drains.
func (r *replica) serve(ctx context.Context, public, internal http.Handler) error {
	log := r.options.Log
	publicServer, err := httpserver.Serve(ctx, httpserver.Port{
		Name: "public", Address: r.options.PublicAddress, MaxConnections: r.options.MaxConnections,
		Handler: public, Log: log, Registerer: r.registry,
	}, r.failed)
	if err != nil {
		return err
	}
	defer publicServer.Close()
	internalServer, err := httpserver.Serve(ctx, httpserver.Port{
		Name: "internal", Address: r.options.InternalAddress, Handler: internal, Log: log, Registerer: r.registry,
	}, r.failed)
	if err != nil {
		return err
	}
	defer internalServer.Close()

	answered := make(chan error, 1)
	go func() { answered <- r.redis.Await(ctx, log) }()
	select {
	case err := <-answered:
		if err != nil {
			return err
		}
	case err := <-r.failed:
		return err
	}
	r.phase.Set(ops.Serving)
	select {
	case err := <-r.failed:
		return err
	case <-ctx.Done():
	}
	r.phase.Set(ops.Draining)
	log.Info("draining", "delay", r.options.DrainDelay)
	select {
	case err := <-r.failed:
		return err
	case <-time.After(r.options.DrainDelay):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.ShutdownTimeout)
	defer cancel()
	return errors.Join(publicServer.Shutdown(ctx), internalServer.Shutdown(ctx))
}
