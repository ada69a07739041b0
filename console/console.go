package console

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/text/language"

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
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// console handles requests. It is safe for concurrent use.
type console struct {
	options Options
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics
	tracer  *tracing.Tracer // of requests; nil: none

	origin  *url.URL // of our pages
	clients clientaddr.Resolver
	limit   *ratelimit.Limiter // of client addresses
	pages   *web.Pages

	login     *login.Handler
	rights    *rights.Reviewer
	payments  *payments.Handler
	allowlist *allowlist.Handler
	merchants *merchants.Handler
	keys      *keys.Handler
	webhook   *webhook.Handler

	objects *objects.Client
	audit   *audit.Recorder
	editor  *edit.Editor
	issuer  *issuer.Client

	turns *web.Inflight // pages in progress that read keys or payments
	waits *web.Inflight // pages that wait for a merchant's server, or for the operator
}

// newConsole returns a console with the role's connections. Its cache of objects is to be started.
func newConsole(options Options, r *role.Role) (*console, error) {
	origin, err := url.Parse(options.ExternalURL)
	if err != nil {
		return nil, fmt.Errorf("--external-url: %w", err)
	}
	origin.Path = ""
	c := &console{
		options: options, log: options.Log, now: options.Now, metrics: newMetrics(r.Registry), tracer: r.Tracer,
		origin: origin, limit: ratelimit.NewLimiter(options.RequestLimit, options.Now),
		rights: &rights.Reviewer{Reviews: authz.NewReviewer(r.Kube.AuthorizationV1().SubjectAccessReviews(), options.RightsLifetime, options.Now)},
		turns:  web.NewInflight(maxPages, maxPersonPages, errTooManyPages),
		waits:  web.NewInflight(maxWaits, maxPersonWaits, errTooManyWaits),
	}
	if c.clients, err = clientaddr.NewResolver(options.TrustedProxies); err != nil {
		return nil, err
	}
	words, err := web.LoadWords(language.English)
	if err != nil {
		return nil, err
	}
	if c.pages, err = web.NewPages(words, c.now); err != nil {
		return nil, err
	}
	if c.login, err = c.newLogin(r.Redis, r.Registry); err != nil {
		return nil, err
	}
	if c.objects, err = objects.Connect(r.Cluster, options.WatchNamespaces); err != nil {
		return nil, err
	}
	c.audit = audit.New(c.objects, r.Registry, c.log, c.now)
	c.editor = &edit.Editor{Objects: c.objects, Audit: c.audit, Words: words}
	if c.issuer, err = issuer.New(r.Cluster, issuer.Options{URL: options.InternalURL, CAFile: options.InternalCAFile, TokenFile: options.InternalTokenFile}); err != nil {
		return nil, err
	}
	c.keys = keys.New(keys.Options{Objects: c.objects, Issuer: c.issuer, Audit: c.audit, Pages: c.pages, Waits: c.waits, Log: c.log})
	c.allowlist = allowlist.New(allowlist.Options{Editor: c.editor, Pages: c.pages, Clients: c.clients})
	c.webhook = webhook.New(webhook.Options{
		Outbox: outbox.New(r.Redis), Editor: c.editor, Issuer: c.issuer, Rights: c.rights, Audit: c.audit, Pages: c.pages, Waits: c.waits,
	})
	sessions, err := store.New(r.Redis, store.Options{History: options.History})
	if err != nil {
		return nil, err
	}
	c.payments = payments.New(payments.Options{
		Store: sessions, Pages: c.pages, KeyNames: c.objects.KeyNames, Log: c.log,
	})
	c.merchants = merchants.New(merchants.Options{
		Objects: c.objects, Rights: c.rights, Keys: c.keys, Allowlist: c.allowlist, Webhook: c.webhook, Payments: c.payments, Pages: c.pages, APIURL: options.APIURL,
	})
	return c, nil
}

func (c *console) newLogin(connection *redis.Client, registry *prometheus.Registry) (*login.Handler, error) {
	return login.New(login.Options{
		Origin: c.origin, Provider: c.options.Provider, Idle: c.options.LoginIdle, Lifetime: c.options.LoginLifetime,
		Redis: connection, Registerer: registry, Log: c.log, Now: c.now,
	})
}

func (c *console) signedOut(w http.ResponseWriter, _ *http.Request) error {
	return c.pages.Render(w, http.StatusOK, "signed-out", web.View{Title: "Signed out"})
}

// maxWaits bounds the pages that wait for somebody else at once, and maxPersonWaits such pages of one person: each keeps a connection for as long
// as webhook.Options.AnswerTimeout.
const maxWaits, maxPersonWaits = 64, 4

var errTooManyWaits = errors.New("too many pages wait at once")
