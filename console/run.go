// Package console serves the merchant console: the web pages where a merchant's own people make, rotate and disable API keys.
// People sign in at an OpenID provider; what they may do is decided by Kubernetes RBAC alone. See docs/design/console.md.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/ops"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// console handles requests. It is safe for concurrent use.
type console struct {
	options   Options
	log       *slog.Logger
	origin    *url.URL // of our pages
	secure    bool     // they are on https
	pages     *pages
	provider  *provider
	logins    *logins
	outbox    *outbox.Outbox // dead letters, health of webhooks
	reviewer  *authz.Reviewer
	merchants client.Reader // Merchants in memory, without what the list does not need
	kube      client.Client // reads and writes at the Kubernetes API
	issuer    *issuer
	clients   clientaddr.Resolver
	limit     *ratelimit.Limiter // of client addresses
	metrics   *metrics
	tracer    *tracing.Tracer // of requests; nil: none
	now       func() time.Time
}

// Run serves the console until ctx ends, then drains. It returns nil after a clean drain, and an error if it could not start, if a
// listener failed, or if requests had to be aborted.
func Run(ctx context.Context, options Options) error {
	if err := options.Validate(); err != nil {
		return err
	}
	tracer, stopTracing, err := tracing.Start(ctx, "console", options.Spans, options.Log)
	if err != nil {
		return fmt.Errorf("start tracing: %w", err)
	}
	defer stopTracing()
	registry := ops.NewRegistry()
	connection, err := redis.Open(redis.Options{URL: options.RedisURL, Log: options.Log, Registerer: registry, Tracer: tracer})
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	ctrllog.SetLogger(logr.FromSlogHandler(options.Log.Handler()))
	cluster, err := kube.Load(options.Kubeconfig, "console")
	if err != nil {
		return err
	}
	core, err := kube.Client(cluster)
	if err != nil {
		return err
	}
	c, err := newConsole(options)
	if err != nil {
		return err
	}
	c.logins = &logins{redis: connection, idle: options.LoginIdle, lifetime: options.LoginLifetime}
	c.outbox = outbox.New(connection)
	c.reviewer = authz.NewReviewer(core.AuthorizationV1().SubjectAccessReviews(), options.RightsLifetime, time.Now)
	c.metrics, c.tracer = newMetrics(registry), tracer
	if c.issuer, err = newIssuer(cluster, options); err != nil {
		return err
	}
	merchants, err := c.connect(cluster)
	if err != nil {
		return err
	}

	r := role{
		console: c, registry: registry, redis: connection, cache: merchants, phase: ops.NewPhase(),
		failed: make(chan error, 2), // listeners
	}
	health := ops.Health{Phase: r.phase, Redis: connection, Age: func() time.Duration { return 0 }, MaxAge: time.Hour}
	opsServer, err := ops.Serve(ctx, options.Ops, health, registry, core, options.Log, r.failed)
	if err != nil {
		return err
	}
	defer opsServer.Close() // probes are answered to the end
	return r.serve(ctx)
}

// role starts and stops a console.
type role struct {
	console  *console
	registry *prometheus.Registry
	redis    *redis.Client
	cache    cache.Cache // of Merchants
	phase    *ops.Phase
	failed   chan error // receives the error of a listener that ended too early
}

func (r role) serve(ctx context.Context) error {
	options := r.console.options
	stopWatching := ops.Background(ctx, func(ctx context.Context) {
		if err := r.cache.Start(ctx); err != nil {
			options.Log.Error("the watch of Merchants ended", "error", err)
		}
	})
	defer stopWatching()
	if err := ops.Await(r.failed, func() error { return awaitCache(ctx, r.cache) }); err != nil || ctx.Err() != nil {
		return err
	}
	listener := httpserver.Options{
		Name: "console", Address: options.Address, Handler: r.console.handler(), WriteTimeout: writeTimeout, Log: options.Log, Registerer: r.registry,
	}
	if options.CertificateDir != "" {
		var err error
		if listener.TLS, err = httpserver.TLS(options.CertificateDir); err != nil {
			return fmt.Errorf("--console-cert-dir: %w", err)
		}
	}
	server, err := httpserver.Serve(ctx, listener, r.failed)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := ops.Await(r.failed, func() error { return r.redis.Await(ctx, options.Log) }); err != nil {
		return err
	}
	r.phase.Set(ops.Serving)
	select {
	case err := <-r.failed:
		return err
	case <-ctx.Done():
	}
	r.phase.Set(ops.Draining)
	options.Log.Info("draining", "delay", options.DrainDelay)
	select {
	case err := <-r.failed:
		return err
	case <-time.After(options.DrainDelay):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), options.ShutdownTimeout)
	defer cancel()
	return server.Shutdown(ctx)
}

// newConsole returns a console without its connections.
func newConsole(options Options) (*console, error) {
	origin, err := url.Parse(options.ExternalURL)
	if err != nil {
		return nil, fmt.Errorf("--external-url: %w", err)
	}
	origin.Path = ""
	pages, err := newPages()
	if err != nil {
		return nil, err
	}
	signIn, err := newProvider(options.Provider, origin.String()+callbackPath)
	if err != nil {
		return nil, err
	}
	clients, err := clientaddr.NewResolver(options.TrustedProxies)
	if err != nil {
		return nil, err
	}
	return &console{
		options: options, log: options.Log, origin: origin, secure: origin.Scheme == "https",
		pages: pages, provider: signIn, clients: clients, limit: ratelimit.NewLimiter(options.RequestLimit, time.Now), now: time.Now,
	}, nil
}

// connect makes the client of the Kubernetes API, and a cache of Merchants for the list, which would be slow without.
func (c *console) connect(cluster *rest.Config) (cache.Cache, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	var err error
	if c.kube, err = client.New(cluster, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	options := cache.Options{Scheme: scheme, NewInformer: kube.PagedInformers(strip), DefaultTransform: strip}
	if len(c.options.WatchNamespaces) > 0 {
		options.DefaultNamespaces = map[string]cache.Config{}
	}
	for _, namespace := range c.options.WatchNamespaces {
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	merchants, err := cache.New(cluster, options)
	if err != nil {
		return nil, fmt.Errorf("create a cache of Merchants: %w", err)
	}
	c.merchants = merchants
	return merchants, nil
}

// strip removes what the list does not show, so that a tenant's metadata costs no memory.
func strip(cached any) (any, error) {
	if merchant, ok := cached.(*v1alpha1.Merchant); ok {
		slim := &v1alpha1.Merchant{Spec: v1alpha1.MerchantSpec{DisplayName: merchant.Spec.DisplayName, State: merchant.Spec.State}}
		slim.Namespace, slim.Name, slim.UID, slim.ResourceVersion = merchant.Namespace, merchant.Name, merchant.UID, merchant.ResourceVersion
		return slim, nil
	}
	return cached, nil
}

// awaitCache returns when all Merchants are in the cache, or ctx has ended.
func awaitCache(ctx context.Context, merchants cache.Cache) error {
	if _, err := merchants.GetInformer(ctx, &v1alpha1.Merchant{}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch Merchants: %w", err)
	}
	return nil
}
