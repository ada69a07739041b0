// Package apiserver serves the payment session API to merchants and payers, and the settlement API to rails. routes.go has
// every route with its right and handler, errors.go the response to each error; each other package below is a room with handlers of one
// subject. Handlers decode the request, call the store and encode the result.
package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/events"
	"github.com/merchant-operator/merchant-operator/apiserver/keys"
	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/apiserver/rail"
	"github.com/merchant-operator/merchant-operator/apiserver/sessions"
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
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// Run serves the API until ctx ends, then drains: it turns unready, goes on serving for the drain delay, and finishes the
// requests in progress. It returns nil after a clean drain, and an error when it could not start, when a listener failed, or
// when requests had to be aborted.
func Run(ctx context.Context, options Options) error {
	if err := options.Validate(); err != nil {
		return err
	}
	process, err := role.Open(ctx, "apiserver", options.Options, redis.Options{
		Replicas: redis.ChooseReplicas(options.SettlementReplicas, options.RedisURL), ReplicaTimeout: options.SettlementWait,
	})
	if err != nil {
		return err
	}
	defer process.Close()
	r, err := newReplica(process, options)
	if err != nil {
		return err
	}
	defer r.payer.Close()
	service, err := r.service()
	if err != nil {
		return err
	}
	return process.Serve(ctx, service)
}

// replica is this process: the rooms, what they share, and what runs beside them.
type replica struct {
	*role.Role
	rooms

	options   Options
	reviews   kubernetes.Interface
	clients   clientaddr.Resolver
	overrides *keys.Overrides
	directory *directory.Directory
	live      *live.Hub
}

func newReplica(process *role.Role, options Options) (*replica, error) {
	log, registry := options.Log, process.Registry
	admitter := admission.New(process.Redis, options.LastUseStep)
	state, err := store.New(process.Redis, store.Options{
		SessionRetention: options.SessionRetention, History: options.History, Receipts: options.Receipts, Admitter: admitter,
	})
	if err != nil {
		return nil, err
	}
	keyState := keystate.New(process.Redis, options.LastUseStep)
	r := &replica{Role: process, options: options}
	if r.reviews, err = kube.Client(process.Cluster); err != nil {
		return nil, err
	}
	if r.clients, err = clientaddr.NewResolver(options.TrustedProxies); err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	published := keys.Published{Secrets: process.Kube.CoreV1().Secrets(options.CredentialsNamespace)}
	r.overrides = keys.NewOverrides(keyState, process.Redis, published, log, registry)
	r.directory = directory.New(directory.Options{Log: log, Registerer: registry, KeyHandler: r.overrides, Now: options.Now})
	r.live = live.New(process.Redis, live.Options{
		Read: state.WatchedSession, Interval: options.Streams.Reread,
		MaxWatches: options.Streams.Max, MaxWatchesPerAddress: options.Streams.MaxPerAddress, Log: log, Registerer: registry,
	})
	reasons := caller.NewReasons(registry)
	r.gate = caller.NewGate(caller.GateOptions{
		Directory: r.directory, Admitter: admitter, Keys: keyState, Redis: process.Redis, Blocked: blocked.New(process.Redis), Clients: r.clients, Reasons: reasons, Now: options.Now,
		Log: log, Registerer: registry, LogRefusedKeys: options.LogRefusedKeys,
	})
	r.accounts = &caller.Accounts{
		NewGuard:     r.newGuard,
		Confidential: options.InternalCertificateDir != "" || httpserver.Loopback(options.InternalAddress),
		Reasons:      reasons,
	}
	links := payer.Links{Base: strings.TrimSuffix(options.PublicURL, "/"), Scheme: options.QRScheme, App: options.PaymentAppURL}
	r.sessions = sessions.New(sessions.Options{Store: state, Gate: r.gate, Links: links, MaxPerDay: options.MaxSessionsPerDay, Now: options.Now})
	r.events = events.New(events.Options{
		Store: state, Gate: r.gate, Live: r.live,
		LongPoll: web.LongPoll{Draining: process.Draining(), Drain: options.Streams.Drain, WriteTimeout: options.Streams.WriteTimeout},
		Log:      log, Registerer: registry,
	})
	r.keys = keys.New(keys.Options{Published: published, Admitter: admitter, Overrides: keyState, Directory: r.directory, Log: log, Registerer: registry, Now: options.Now})
	r.rail = rail.New(rail.Options{Store: state, Directory: r.directory, Gate: r.gate, Log: log, Registerer: registry})
	limit := options.PublicRateLimit
	r.payer, err = payer.New(payer.Options{
		Store: state, Directory: r.directory, Clients: r.clients, Live: r.live,
		Links: links, LinkInQR: options.QRContent == QRContentLink,
		Limit: ratelimit.Policy{RequestsPerSecond: int64(limit.RequestsPerSecond), Burst: int64(limit.Burst)}, Now: options.Now,
		MaxConnections: options.MaxConnections, Clustered: process.Redis.Clustered(),
		Streams: options.Streams, Draining: process.Draining(), Registerer: registry,
	})
	if err != nil {
		return nil, fmt.Errorf("pages of payers: %w", err)
	}
	return r, nil
}

// service has the two listeners, and what runs beside them.
func (r *replica) service() (role.Service, error) {
	public, internal := r.handlers()
	internalListener := httpserver.Options{
		Name: "internal", Address: r.options.InternalAddress, Handler: internal, Log: r.options.Log, Registerer: r.Registry,
	}
	if r.options.InternalCertificateDir != "" {
		var err error
		if internalListener.TLS, err = httpserver.TLS(r.options.InternalCertificateDir, internalListener); err != nil {
			return role.Service{}, fmt.Errorf("--internal-cert-dir: %w", err)
		}
	}
	return role.Service{
		Age: r.directory.Age, MaxAge: keystate.OverrideLifetime, Reviews: r.reviews,
		Background: []func(context.Context){r.overrides.Run, r.live.Run, r.gate.Run, func(ctx context.Context) {
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
		Finish: r.payer.Finish,
	}, nil
}

func (r *replica) handlers() (public, internal http.Handler) {
	metrics := web.NewMetrics(r.Registry)
	options := web.Options{
		Log: r.options.Log, AccessLog: r.options.AccessLog, Draining: r.IsDraining, Tracer: r.Tracer, Answer: Answer,
		Trusted:  func(*http.Request) bool { return true }, // only the platform's own programs reach the internal listener
		Finished: r.accounts.Finished,
	}
	internal = web.New(options, metrics, r.internalRoutes())
	options.Trusted = func(request *http.Request) bool { return r.clients.TrustsPeer(request.RemoteAddr) }
	options.Finished, options.CrossOrigin = r.gate.Finished, "/api/v1/"
	return web.New(options, metrics, r.publicRoutes()), internal
}

// newGuard returns the guard of a verb on a path of the internal listener.
func (r *replica) newGuard(verb, path string) *authz.Guard {
	return authz.New(authz.Options{
		TokenReviews:         r.reviews.AuthenticationV1().TokenReviews(),
		SubjectAccessReviews: r.reviews.AuthorizationV1().SubjectAccessReviews(),
		Verb:                 verb,
		Path:                 path,
		Audience:             r.options.InternalAudience,
		Lifetime:             r.options.InternalCacheTTL,
		Now:                  r.options.Now,
		Log:                  r.options.Log,
	})
}
