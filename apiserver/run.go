// Package apiserver serves the payment session API to merchants and payers, and the settlement API to rails. routes.go has
// every route. Handlers decode the request, call the store and encode the result; response.go has the response to each error.
package apiserver

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/keys"
	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/role"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Run serves the API until ctx ends, then drains: it turns unready, goes on serving for the drain delay, and finishes the
// requests in progress. It returns nil after a clean drain, and an error when it could not start, when a listener failed, or
// when requests had to be aborted.
func Run(ctx context.Context, options Options) error {
	if err := options.Validate(); err != nil {
		return err
	}
	process, err := role.Open(ctx, "apiserver", options.Options, redis.Options{
		Timeout: options.RedisTimeout, Replicas: options.SettlementReplicas, ReplicaTimeout: options.SettlementWait,
	})
	if err != nil {
		return err
	}
	defer process.Close()
	r, err := newReplica(process, options)
	if err != nil {
		return err
	}
	defer r.streams.close()
	service, err := r.service()
	if err != nil {
		return err
	}
	return process.Serve(ctx, service)
}

// replica is this process.
type replica struct {
	*role.Role

	options   Options
	store     *store.Store
	reviews   kubernetes.Interface
	published keys.Published
	overrides *keys.Overrides
	directory *directory.Directory
	live      *live.Hub
	streams   *streams
}

func newReplica(process *role.Role, options Options) (*replica, error) {
	sessions, err := store.New(process.Redis, store.Options{SessionRetention: options.SessionRetention})
	if err != nil {
		return nil, err
	}
	reviews, err := kube.Client(kube.Apart(process.Cluster))
	if err != nil {
		return nil, err
	}
	log, registry := options.Log, process.Registry
	published := keys.Published{Secrets: process.Kube.CoreV1().Secrets(options.CredentialsNamespace)}
	overrides := keys.NewOverrides(sessions, published, log, registry)
	return &replica{
		Role: process, options: options, store: sessions, reviews: reviews, published: published, overrides: overrides,
		directory: directory.New(directory.Options{Log: log, Registerer: registry, KeyHandler: overrides, Now: options.Now}),
		live: live.New(process.Redis, live.Options{
			Read: sessions.WatchedSession, Interval: options.Streams.Reread,
			MaxWatches: options.Streams.Max, MaxWatchesPerAddress: options.Streams.MaxPerAddress, Log: log, Registerer: registry,
		}),
		streams: newStreams(options.Streams, process.Draining()),
	}, nil
}

// service has the two listeners, and what runs beside them.
func (r *replica) service() (role.Service, error) {
	clients, err := clientaddr.NewResolver(r.options.TrustedProxies)
	if err != nil {
		return role.Service{}, fmt.Errorf("options: %w", err)
	}
	reasons := caller.NewReasons(r.Registry)
	gate := caller.NewGate(caller.GateOptions{
		Directory: r.directory, Store: r.store, Clients: clients, Reasons: reasons, Now: r.options.Now,
		Log: r.options.Log, Registerer: r.Registry, LogRefusedKeys: r.options.LogRefusedKeys,
	})
	public, internal, err := r.handlers(clients, gate, reasons)
	if err != nil {
		return role.Service{}, err
	}
	internalListener := httpserver.Options{
		Name: "internal", Address: r.options.InternalAddress, Handler: internal, Log: r.options.Log, Registerer: r.Registry,
	}
	if r.options.InternalCertificateDir != "" {
		if internalListener.TLS, err = httpserver.TLS(r.options.InternalCertificateDir); err != nil {
			return role.Service{}, fmt.Errorf("--internal-cert-dir: %w", err)
		}
	}
	return role.Service{
		Age: r.directory.Age, MaxAge: store.OverrideLifetime, Reviews: r.reviews,
		Background: []func(context.Context){r.overrides.Run, r.live.Run, gate.Run, func(ctx context.Context) {
			r.directory.Watch(ctx, r.Kube.CoreV1().RESTClient(), r.options.CredentialsNamespace)
		}},
		Sync: role.Closed(r.directory.Synced()),
		Listeners: []httpserver.Options{
			{
				Name: "public", Address: r.options.PublicAddress, MaxConnections: r.options.MaxConnections,
				Handler: public, Log: r.options.Log, Registerer: r.Registry,
			},
			internalListener,
		},
		Finish: r.streams.finish,
	}, nil
}

func (r *replica) handlers(clients clientaddr.Resolver, gate *caller.Gate, reasons *caller.Reasons) (public, internal http.Handler, err error) {
	pages, err := newPayerPages(r.options)
	if err != nil {
		return nil, nil, fmt.Errorf("pages of payers: %w", err)
	}
	limit := ratelimit.Policy{
		RequestsPerSecond: int64(r.options.PublicRateLimit.RequestsPerSecond), Burst: int64(r.options.PublicRateLimit.Burst),
	}
	unstored := newUnstored(r.Registry)
	rotations := keys.New(keys.Options{
		Published: r.published, Store: r.store, Directory: r.directory, Log: r.options.Log, Registerer: r.Registry,
	})
	publicSide := &publicAPI{
		gate:        gate,
		unstored:    unstored,
		directory:   r.directory,
		store:       r.store,
		keys:        rotations,
		clients:     clients,
		publicLimit: limit,
		publicReads: ratelimit.NewLimiter(limit, r.options.Now),
		payers:      newPayerQueues(r.options.MaxConnections, r.Redis.Clustered(), r.Registry),
		live:        r.live,
		streams:     r.streams,
		pages:       pages,
		qrScheme:    r.options.QRScheme,
	}
	internalSide := &internalAPI{
		accounts: &caller.Accounts{
			NewGuard:     r.newGuard,
			Confidential: r.options.InternalCertificateDir != "" || httpserver.Loopback(r.options.InternalAddress),
			Reasons:      reasons,
		},
		log:         r.options.Log,
		unstored:    unstored,
		directory:   r.directory,
		store:       r.store,
		keys:        rotations,
		settlements: newSettlements(r.Registry),
	}
	options := web.Options{
		Log: r.options.Log, AccessLog: r.options.AccessLog, Draining: r.IsDraining, Tracer: r.Tracer, Answer: answer,
		Trusted:  func(*http.Request) bool { return true }, // only the platform's own programs reach the internal listener
		Finished: internalSide.accounts.Finished,
	}
	metrics := web.NewMetrics(r.Registry)
	internal = web.New(options, metrics, internalSide.internalRoutes())
	options.Trusted = func(request *http.Request) bool { return clients.TrustsPeer(request.RemoteAddr) }
	options.Finished, options.CrossOrigin = gate.Finished, "/api/v1/"
	return web.New(options, metrics, publicSide.publicRoutes()), internal, nil
}

// newGuard returns the guard of a path of the internal listener.
func (r *replica) newGuard(path string) *authz.Guard {
	return authz.New(authz.Options{
		TokenReviews:         r.reviews.AuthenticationV1().TokenReviews(),
		SubjectAccessReviews: r.reviews.AuthorizationV1().SubjectAccessReviews(),
		Verb:                 "post",
		Path:                 path,
		Audience:             r.options.InternalAudience,
		Lifetime:             r.options.InternalCacheTTL,
		Now:                  r.options.Now,
		Log:                  r.options.Log,
	})
}
