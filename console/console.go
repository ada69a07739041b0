package console

import (
	"net/http"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/lru"

	"github.com/merchant-operator/merchant-operator/console/allowlist"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/edit"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/merchants"
	"github.com/merchant-operator/merchant-operator/console/objects"
	"github.com/merchant-operator/merchant-operator/console/payments"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/console/webhook"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/role"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// console handles requests. It is safe for concurrent use.
type console struct {
	rooms
	gate
}

// maxWaits bounds the pages that wait for somebody else at once, and maxPersonWaits such pages of one person: each keeps a connection for as long
// as webhook.Options.AnswerTimeout.
const maxWaits, maxPersonWaits = 64, 4

// newConsole returns a console with the role's connections. Its cache of objects is to be started.
func newConsole(options Options, r *role.Role) (*console, error) {
	pages, err := web.NewPages(options.Now)
	if err != nil {
		return nil, err
	}
	c := new(console)
	if c.gate, err = newGate(options, r, pages); err != nil {
		return nil, err
	}
	if c.rooms, err = newRooms(options, r, &c.gate); err != nil {
		return nil, err
	}
	return c, nil
}

// handler returns the handler of all requests.
func (c *console) handler() http.Handler {
	r := &routes{&c.gate, http.NewServeMux()}
	c.addRoutes(r)
	return c.pages.InLanguage(c.middleware.observe(c.middleware.protect(r.mux)))
}

func newGate(options Options, r *role.Role, pages *web.Pages) (g gate, err error) {
	origin, err := parseOrigin("--external-url", options.ExternalURL)
	if err != nil {
		return g, err
	}
	clients, err := clientaddr.NewResolver(options.TrustedProxies)
	if err != nil {
		return g, err
	}
	g = gate{
		problems: &problems{pages, origin, options.Log}, pages: pages, tracer: r.Tracer, namespaces: options.WatchNamespaces,
		rights: &rights.Reviewer{Reviews: authz.NewReviewer(r.Kube.AuthorizationV1().SubjectAccessReviews(), options.RightsLifetime, options.Now)},
		turns:  web.NewInflight(maxPages, maxPersonPages, errTooManyPages), turnTimeout: defaultTurnTimeout,
		unsent: web.NewInflight(maxUnsentPages, maxPersonPages, errTooManyPages), shown: lru.New(maxShown),
		signIns: web.NewInflight(maxSignIns, maxAddressSignIns, errTooManyPages),
	}
	g.middleware = &middleware{
		problems: g.problems, origin: origin, clients: clients, limit: ratelimit.NewLimiter(options.RequestLimit, options.Now),
		metrics: newMetrics(r.Registry), log: options.Log, now: options.Now,
	}
	if g.login, err = newLogin(options, origin, r.Redis, r.Registry); err != nil {
		return g, err
	}
	g.objects, err = objects.Connect(r.Cluster, options.WatchNamespaces)
	return g, err
}

func newLogin(options Options, origin *url.URL, connection *redis.Client, registry *prometheus.Registry) (*login.Handler, error) {
	return login.New(login.Options{
		Origin: origin, Provider: options.Provider, Idle: options.LoginIdle, Lifetime: options.LoginLifetime,
		Redis: connection, Registerer: registry, Log: options.Log, Now: options.Now,
	})
}

// newRooms returns the rooms behind a gate, whose pages and client of Kubernetes they share.
func newRooms(options Options, r *role.Role, g *gate) (all rooms, err error) {
	sessions, err := store.New(r.Redis, store.Options{History: options.History, SessionRetention: options.SessionRetention})
	if err != nil {
		return all, err
	}
	internal, err := issuer.New(r.Cluster, issuer.Options{URL: options.InternalURL, CAFile: options.InternalCAFile, TokenFile: options.InternalTokenFile})
	if err != nil {
		return all, err
	}
	recorder := audit.New(g.objects, r.Registry, options.Log, options.Now)
	editor := &edit.Editor{Objects: g.objects, Audit: recorder, Pages: g.pages}
	waits := web.NewInflight(maxWaits, maxPersonWaits, errTooManyWaits)
	all = rooms{
		keys:      keys.New(keys.Options{Objects: g.objects, Issuer: internal, Audit: recorder, Pages: g.pages, Waits: waits, Log: options.Log}),
		allowlist: allowlist.New(allowlist.Options{Editor: editor, Pages: g.pages, Clients: g.middleware.clients}),
		webhook: webhook.New(webhook.Options{
			Outbox: outbox.New(r.Redis), Editor: editor, Issuer: internal, Rights: g.rights, Audit: recorder, Pages: g.pages, Waits: waits,
		}),
	}
	all.payments = payments.New(payments.Options{
		Store: sessions, Rights: g.rights, Audit: recorder, Pages: g.pages, KeyNames: g.objects.KeyNames, Log: options.Log,
		Attention: func(r *web.Request) (web.Attention, error) { return all.merchants.Attention(r) },
	})
	all.merchants = merchants.New(merchants.Options{
		Objects: g.objects, Rights: g.rights, Keys: all.keys, Allowlist: all.allowlist, Webhook: all.webhook, Payments: all.payments,
		Pages: g.pages, APIURL: options.APIURL,
	})
	return all, nil
}
