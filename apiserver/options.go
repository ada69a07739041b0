package apiserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/ops"
)

// Options configure Run. Start from DefaultOptions; only RedisURL has no default.
type Options struct {
	// Kubeconfig is a file; empty: $KUBECONFIG, then the pod's own service account.
	Kubeconfig string
	// CredentialsNamespace holds the published objects. Default merchant-operator-credentials.
	CredentialsNamespace string

	// RedisURL has the forms of store.Open. It may hold a password and is never logged.
	RedisURL string
	// SessionRetention is how long a session can be read after its expiry. Default 72 h.
	SessionRetention time.Duration

	// PublicAddress is the API's listen address, the one an ingress routes to. Default :8080.
	PublicAddress string
	// InternalAddress is for callers inside the cluster. Default :8081.
	InternalAddress string
	// Ops is the port of health and metrics.
	Ops ops.Options

	// MaxConnections of clients are open at most. Past it, those are closed that have waited longest for a request. An idle one
	// takes some 23 KiB. Default 10,000.
	MaxConnections int

	// QRScheme is the URI scheme of QR payloads, <scheme>://qr/<session id>. Default pay.
	QRScheme string
	// TrustedProxies are the blocks whose X-Forwarded-For is believed. Default none.
	TrustedProxies []netip.Prefix
	// PublicRateLimit bounds the public reads of one client address in each of the 64 buckets of
	// sessions. Default 50 a second, 100 at once.
	PublicRateLimit v1alpha1.RateLimit

	// RailAudience is who the tokens of rails must have been issued for. Default the Kubernetes API itself.
	RailAudience string
	// RailVerdictLifetime is how long an answer of the Kubernetes API about a rail is remembered, hence how
	// long one is still let in that has lost its right. Default 10 s.
	RailVerdictLifetime time.Duration

	// SettlementReplicas is how many replicas of Redis must have a settlement before the rail gets its answer; fewer: 503,
	// and the rail reports again. Default 0: the master's word is enough.
	SettlementReplicas int
	// SettlementWait is how long a settlement waits for them. Default 300 ms.
	SettlementWait time.Duration

	// DrainDelay is between turning unready and closing the listeners, for load balancers to
	// notice. Default 5 s.
	DrainDelay time.Duration
	// ShutdownTimeout bounds the wait for requests under way after that. Default 20 s.
	ShutdownTimeout time.Duration

	// AccessLog logs each request at INFO, with an id that its answer has in X-Request-Id. Default: at DEBUG, without.
	AccessLog bool

	// Spans takes the spans instead of the place that the OTEL_* variables name. Default: those decide.
	Spans sdktrace.SpanProcessor

	Log *slog.Logger
}

// DefaultOptions returns Options with every default filled in.
func DefaultOptions() Options {
	return Options{
		CredentialsNamespace: "merchant-operator-credentials",
		SessionRetention:     72 * time.Hour,
		PublicAddress:        ":8080",
		InternalAddress:      ":8081",
		Ops:                  ops.DefaultOptions(),
		MaxConnections:       10_000,
		QRScheme:             "pay",
		PublicRateLimit:      v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
		RailVerdictLifetime:  10 * time.Second,
		SettlementWait:       300 * time.Millisecond,
		DrainDelay:           5 * time.Second,
		ShutdownTimeout:      20 * time.Second,
		Log:                  slog.Default(),
	}
}

// schemeForm is of RFC 3986, section 3.1.
var schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// Validate says which option cannot work. What the store decides about its own is not repeated.
func (o Options) Validate() error {
	if _, err := clientaddr.NewResolver(o.TrustedProxies); err != nil {
		return err
	}
	switch {
	case o.CredentialsNamespace == "":
		return errors.New("set --credentials-namespace")
	case o.RedisURL == "":
		return errors.New("set --redis-url or REDIS_URL")
	case o.PublicAddress == "" || o.InternalAddress == "":
		return errors.New("set --public-address and --internal-address")
	case o.MaxConnections < 1:
		return errors.New("the number of connections must be at least 1")
	case !schemeForm.MatchString(o.QRScheme):
		return fmt.Errorf("QR scheme %q: want a URI scheme such as pay", o.QRScheme)
	case o.PublicRateLimit.RequestsPerSecond < 1 || o.PublicRateLimit.Burst < 1:
		return errors.New("the public rate limit must be at least 1 request a second, and 1 at once")
	case o.RailVerdictLifetime <= 0:
		return errors.New("the lifetime of a verdict on a rail must be positive")
	case o.DrainDelay < 0 || o.ShutdownTimeout <= 0:
		return errors.New("the drain delay must not be negative, and the shutdown timeout must be positive")
	case o.Log == nil:
		return errors.New("options: incomplete; start from DefaultOptions")
	}
	return o.Ops.Validate()
}
