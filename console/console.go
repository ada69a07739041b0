package console

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"golang.org/x/text/language"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/money"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// console handles requests. It is safe for concurrent use.
type console struct {
	options    Options
	log        *slog.Logger
	origin     *url.URL // of our pages
	secure     bool     // they are on https
	pages      *pages
	words      words
	login      *login.Handler
	outbox     *outbox.Outbox // dead letters, health of webhooks
	payments   paymentReader
	closedDays *closedDays
	amounts    money.Formatter
	exports    *inflight // downloads
	waits      *inflight // pages that wait for a merchant's server, or for the operator
	reviewer   *authz.Reviewer
	merchants  client.Reader // Merchants and ApiKeys in memory, without what the list does not need
	kube       client.Client // reads and writes at the Kubernetes API
	issuer     *issuer
	clients    clientaddr.Resolver
	limit      *ratelimit.Limiter // of client addresses
	metrics    *metrics
	tracer     *tracing.Tracer // of requests; nil: none
	// answerTimeout is how long a page waits for the answer to a test event, or for a new signing secret.
	answerTimeout time.Duration
	answers       *singleflight.Group // waits for one, by merchant id
	now           func() time.Time
}

// newConsole returns a console without its connections.
func newConsole(options Options) (*console, error) {
	origin, err := url.Parse(options.ExternalURL)
	if err != nil {
		return nil, fmt.Errorf("--external-url: %w", err)
	}
	origin.Path = ""
	words, err := loadWords(language.English)
	if err != nil {
		return nil, err
	}
	pages, err := newPages(words)
	if err != nil {
		return nil, err
	}
	clients, err := clientaddr.NewResolver(options.TrustedProxies)
	if err != nil {
		return nil, err
	}
	return &console{
		options: options, log: options.Log, origin: origin, secure: origin.Scheme == "https",
		pages: pages, words: words, amounts: money.NewFormatter(language.English), exports: newInflight(maxExports, maxPersonExports, errTooManyExports), waits: newInflight(maxWaits, maxPersonWaits, errTooManyWaits), clients: clients, limit: ratelimit.NewLimiter(options.RequestLimit, options.Now), answers: new(singleflight.Group), now: options.Now,
		answerTimeout: answerTimeout, closedDays: newClosedDays(),
	}, nil
}

func (c *console) newLogin(connection *redis.Client, registry *prometheus.Registry) (*login.Handler, error) {
	return login.New(login.Options{
		Origin: c.origin, Provider: c.options.Provider, Idle: c.options.LoginIdle, Lifetime: c.options.LoginLifetime,
		Redis: connection, Registerer: registry, Log: c.log, Now: c.now,
	})
}

func (c *console) signedOut(w http.ResponseWriter, _ *http.Request) error {
	return c.pages.render(w, http.StatusOK, "signed-out", view{Title: "Signed out"})
}
