// Package apiserver serves the payment session API to merchants and payers, and the settlement API to rails. routes.go has
// every route. Handlers decode the request, call the store and encode the result; response.go has the response to each error.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/ops"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// Run serves the API until ctx ends, then drains: it turns unready, goes on serving for the drain delay, and finishes the
// requests in progress. It returns nil after a clean drain, and an error when it could not start, when a listener failed, or
// when requests had to be aborted.
func Run(ctx context.Context, options Options) error {
	if err := options.Validate(); err != nil {
		return err
	}
	tracer, stopTracing, err := tracing.Start(ctx, "apiserver", options.Spans, options.Log)
	if err != nil {
		return fmt.Errorf("start tracing: %w", err)
	}
	defer stopTracing()
	registry := ops.NewRegistry()
	client, err := redis.Open(redis.Options{
		URL: options.RedisURL, Timeout: options.RedisTimeout, Replicas: options.SettlementReplicas, ReplicaTimeout: options.SettlementWait,
		Log: options.Log, Registerer: registry, Tracer: tracer,
	})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	sessions, err := store.New(client, store.Options{SessionRetention: options.SessionRetention})
	if err != nil {
		return fmt.Errorf("--session-retention: %w", err)
	}
	cluster, err := kube.Load(options.Kubeconfig, "apiserver")
	if err != nil {
		return err
	}
	core, err := kube.Client(cluster)
	if err != nil {
		return err
	}

	reviews, err := kube.Client(kube.Apart(cluster))
	if err != nil {
		return err
	}
	keys := publishedKeys{secrets: core.CoreV1().Secrets(options.CredentialsNamespace), now: time.Now}
	overrides := newOverrideWriter(sessions, keys, options.Log, registry)
	index := directory.New(directory.Options{Log: options.Log, Registerer: registry, KeyHandler: overrides, Now: time.Now})
	const listeners = 3
	r := &replica{
		options: options, redis: client, store: sessions, reviews: reviews, keys: keys, directory: index, registry: registry, tracer: tracer,
		phase: ops.NewPhase(), draining: make(chan struct{}), failed: make(chan error, listeners),
	}
	r.unlisted = newAllowlistRefusals(sessions, options.Log, registry)
	r.streams = newStreams(options.Streams, r.draining)
	r.live = live.New(client, live.Options{
		Read: sessions.WatchedSession, Interval: options.Streams.Reread,
		MaxWatches: options.Streams.Max, MaxWatchesPerAddress: options.Streams.MaxPerAddress, Log: options.Log, Registerer: registry,
	})
	health := ops.Health{Phase: r.phase, Redis: client, Age: index.Age, MaxAge: store.OverrideLifetime}
	opsServer, err := ops.Serve(ctx, options.Ops, health, registry, reviews, options.Log, r.failed)
	if err != nil {
		return err
	}
	defer opsServer.Close() // probes are answered to the end

	stopWatching := ops.Background(ctx, overrides.run, r.live.Run, r.unlisted.run, func(ctx context.Context) {
		index.Watch(ctx, core.CoreV1().RESTClient(), options.CredentialsNamespace)
	})
	defer stopWatching()
	select {
	case <-index.Synced():
	case err := <-r.failed:
		return err
	case <-ctx.Done():
		return nil
	}
	return r.serve(ctx)
}

// replica is this process with its listeners.
type replica struct {
	options   Options
	redis     *redis.Client
	store     *store.Store
	reviews   kubernetes.Interface
	keys      publishedKeys
	directory *directory.Directory
	registry  *prometheus.Registry
	tracer    *tracing.Tracer
	live      *live.Hub
	unlisted  *allowlistRefusals
	streams   *streams
	phase     *ops.Phase
	draining  chan struct{} // closed when this replica drains
	failed    chan error    // receives the error of a listener that ended too early
}

// serve handles requests until ctx ends, and drains.
func (r *replica) serve(ctx context.Context) error {
	public, internal, err := r.handlers()
	if err != nil {
		return err
	}
	log := r.options.Log
	publicServer, err := httpserver.Serve(ctx, httpserver.Options{
		Name: "public", Address: r.options.PublicAddress, MaxConnections: r.options.MaxConnections,
		Handler: public, Log: log, Registerer: r.registry,
	}, r.failed)
	if err != nil {
		return err
	}
	defer func() {
		publicServer.Close()
		r.streams.close()
	}()
	internalOptions := httpserver.Options{
		Name: "internal", Address: r.options.InternalAddress, Handler: internal, Log: log, Registerer: r.registry,
	}
	if r.options.InternalCertificateDir != "" {
		if internalOptions.TLS, err = httpserver.TLS(r.options.InternalCertificateDir); err != nil {
			return fmt.Errorf("--internal-cert-dir: %w", err)
		}
	}
	internalServer, err := httpserver.Serve(ctx, internalOptions, r.failed)
	if err != nil {
		return err
	}
	defer internalServer.Close()

	if err := ops.Await(r.failed, func() error { return r.redis.Await(ctx, log) }); err != nil {
		return err
	}
	r.phase.Set(ops.Serving)
	select {
	case err := <-r.failed:
		return err
	case <-ctx.Done():
	}
	r.phase.Set(ops.Draining)
	close(r.draining)
	log.Info("draining", "delay", r.options.DrainDelay)
	select {
	case err := <-r.failed:
		return err
	case <-time.After(r.options.DrainDelay):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.ShutdownTimeout)
	defer cancel()
	err = errors.Join(publicServer.Shutdown(ctx), internalServer.Shutdown(ctx))
	r.streams.finish(ctx)
	return err
}

func (r *replica) handlers() (public, internal http.Handler, err error) {
	clients, err := clientaddr.NewResolver(r.options.TrustedProxies)
	if err != nil {
		return nil, nil, fmt.Errorf("options: %w", err)
	}
	pages, err := newPayerPages(r.options)
	if err != nil {
		return nil, nil, fmt.Errorf("pages of payers: %w", err)
	}
	shared := base{
		log:       r.options.Log,
		metrics:   newMetrics(r.registry),
		draining:  func() bool { return r.phase.Is(ops.Draining) },
		tracer:    r.tracer,
		accessLog: r.options.AccessLog,
		trusted:   func(request *http.Request) bool { return clients.TrustsPeer(request.RemoteAddr) },
	}
	issuer := rotator{base: shared, keys: r.keys, store: r.store}
	publicSide := &publicAPI{
		base:        shared,
		directory:   r.directory,
		store:       r.store,
		rotator:     issuer,
		clients:     clients,
		publicLimit: policyOf(r.options.PublicRateLimit),
		wrongKeys:   newWrongKeys(r.store),
		unlisted:    r.unlisted,
		payers:      newPayerQueue(r.options.MaxConnections, r.registry),
		live:        r.live,
		streams:     r.streams,
		pages:       pages,
		qrScheme:    r.options.QRScheme,
		now:         time.Now,
	}
	if r.options.LogRefusedKeys {
		publicSide.refusals = newRefusalLog(r.options.Log, time.Now)
	}
	shared.trusted = func(*http.Request) bool { return true } // only the platform's own programs reach the internal listener
	internalSide := &internalAPI{
		base: shared,
		guardOf: func(path string) *authz.Guard {
			return authz.New(authz.Options{
				TokenReviews:         r.reviews.AuthenticationV1().TokenReviews(),
				SubjectAccessReviews: r.reviews.AuthorizationV1().SubjectAccessReviews(),
				Verb:                 "post",
				Path:                 path,
				Audience:             r.options.InternalAudience,
				Lifetime:             r.options.InternalCacheTTL,
				Now:                  time.Now,
				Log:                  r.options.Log,
			})
		},
		store:        r.store,
		rotator:      issuer,
		settlements:  newSettlements(r.registry),
		confidential: r.options.InternalCertificateDir != "" || httpserver.Loopback(r.options.InternalAddress),
	}
	return publicSide.publicHandler(), internalSide.internalHandler(), nil
}
