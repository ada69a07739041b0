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
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/role"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// console handles requests. It is safe for concurrent use.
type console struct {
	options   Options
	log       *slog.Logger
	origin    *url.URL // of our pages
	secure    bool     // they are on https
	pages     *pages
	login     *login.Handler
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
	r, err := role.Open(ctx, "console", options.Options, redis.Options{})
	if err != nil {
		return err
	}
	defer r.Close()
	ctrllog.SetLogger(logr.FromSlogHandler(options.Log.Handler()))
	c, err := newConsole(options)
	if err != nil {
		return err
	}
	if c.login, err = c.newLogin(r.Redis, r.Registry); err != nil {
		return err
	}
	c.outbox = outbox.New(r.Redis)
	c.reviewer = authz.NewReviewer(r.Kube.AuthorizationV1().SubjectAccessReviews(), options.RightsLifetime, time.Now)
	c.metrics, c.tracer = newMetrics(r.Registry), r.Tracer
	if c.issuer, err = newIssuer(r.Cluster, options); err != nil {
		return err
	}
	merchants, err := c.connect(r.Cluster)
	if err != nil {
		return err
	}
	listener := httpserver.Options{
		Name: "console", Address: options.Address, Handler: c.handler(), WriteTimeout: writeTimeout, Log: options.Log, Registerer: r.Registry,
	}
	if options.CertificateDir != "" {
		if listener.TLS, err = httpserver.TLS(options.CertificateDir); err != nil {
			return fmt.Errorf("--console-cert-dir: %w", err)
		}
	}
	return r.Serve(ctx, role.Service{
		Background: []func(context.Context){func(ctx context.Context) {
			if err := merchants.Start(ctx); err != nil {
				options.Log.Error("the watch of Merchants ended", "error", err)
			}
		}},
		Sync:      func(ctx context.Context) error { return awaitCache(ctx, merchants) },
		Listeners: []httpserver.Options{listener},
	})
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
	clients, err := clientaddr.NewResolver(options.TrustedProxies)
	if err != nil {
		return nil, err
	}
	return &console{
		options: options, log: options.Log, origin: origin, secure: origin.Scheme == "https",
		pages: pages, clients: clients, limit: ratelimit.NewLimiter(options.RequestLimit, time.Now), now: time.Now,
	}, nil
}

func (c *console) newLogin(connection *redis.Client, registry *prometheus.Registry) (*login.Handler, error) {
	return login.New(login.Options{
		Origin: c.origin, Provider: c.options.Provider, Idle: c.options.LoginIdle, Lifetime: c.options.LoginLifetime,
		Redis: connection, Registerer: registry, Log: c.log, Now: c.now,
	})
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
	merchants, err := cache.New(cluster, cache.Options{
		Scheme: scheme, NewInformer: kube.PagedInformers(strip), DefaultTransform: strip,
		DefaultNamespaces: kube.WatchedNamespaces(c.options.WatchNamespaces),
	})
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
