package dispatcher

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
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
	// Ops is the port of health and metrics.
	Ops ops.Options

	// AllowHTTP permits endpoints over plain HTTP. Default: https only.
	AllowHTTP bool
	// AllowCIDRs permit endpoints inside these blocks, besides public addresses. Default none.
	AllowCIDRs []netip.Prefix

	// Lease is how long a dispatcher that crashed delays its events. Default 30 s; it must be longer than an attempt
	// may take, and whatever it is longer is how long an event may wait here for its turn.
	Lease time.Duration
	// Concurrency bounds the attempts under way to one endpoint. Default 8.
	Concurrency int
	// MaxInFlight bounds the attempts under way to all endpoints. Default 512.
	MaxInFlight int
	// Schedule says when an event is tried. Default DefaultSchedule.
	Schedule Schedule
	// FailingLimit is how long an endpoint may do nothing but fail before it is disabled. Default 120 h.
	FailingLimit time.Duration

	// ShutdownTimeout bounds the wait for attempts under way. Default 20 s.
	ShutdownTimeout time.Duration

	// Spans takes the spans instead of the place that the OTEL_* variables name. Default: those decide.
	Spans sdktrace.SpanProcessor

	Log *slog.Logger
}

// DefaultOptions returns Options with every default filled in.
func DefaultOptions() Options {
	return Options{
		CredentialsNamespace: "merchant-operator-credentials",
		Ops:                  ops.DefaultOptions(),
		Lease:                30 * time.Second,
		Concurrency:          8,
		MaxInFlight:          512,
		Schedule:             DefaultSchedule(),
		FailingLimit:         120 * time.Hour,
		ShutdownTimeout:      20 * time.Second,
		Log:                  slog.Default(),
	}
}

// minLease leaves an event a second to wait for its turn.
const minLease = delivery.Timeout + attemptMargin + time.Second

// Validate says which option cannot work. What the store decides about its own is not repeated.
func (o Options) Validate() error {
	switch {
	case o.CredentialsNamespace == "":
		return errors.New("set --credentials-namespace")
	case o.RedisURL == "":
		return errors.New("set --redis-url or REDIS_URL")
	case o.Lease < minLease:
		return fmt.Errorf("the lease must be at least %s, for an attempt may take %s", minLease, delivery.Timeout)
	case o.Concurrency < 1 || o.MaxInFlight < 1:
		return errors.New("the attempts under way must be at least 1, to one endpoint and to all")
	case o.FailingLimit <= 0:
		return errors.New("the time an endpoint may fail must be positive")
	case o.ShutdownTimeout <= 0:
		return errors.New("the shutdown timeout must be positive")
	case o.Log == nil:
		return errors.New("options: incomplete; start from DefaultOptions")
	}
	return errors.Join(o.Ops.Validate(), o.Schedule.validate())
}
