package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"
)

// Options configure Run. Start from DefaultOptions; only RedisURL has no default.
type Options struct {
	// Kubeconfig is a file; empty: $KUBECONFIG, then the pod's own service account.
	Kubeconfig string
	// CredentialsNamespace holds the published objects. Default merchant-operator-credentials.
	CredentialsNamespace string
	// RedisURL has the forms of store.Open. It may hold a password and is never logged.
	RedisURL string
	// OpsAddress serves /healthz, /readyz and /metrics. Default :9090.
	OpsAddress string

	// AllowHTTP permits endpoints over plain HTTP. Default: https only.
	AllowHTTP bool
	// AllowCIDRs permit endpoints inside these blocks, besides public addresses. Default none.
	AllowCIDRs []netip.Prefix

	// Lease is how long a dispatcher that crashed delays its events. Default 30 s; more than an attempt takes.
	Lease time.Duration
	// Concurrency bounds the attempts under way to one endpoint. Default 8.
	Concurrency int
	// MaxInFlight bounds the attempts under way to all endpoints. Default 512.
	MaxInFlight int
	// Schedule says when an event is tried again. Default DefaultSchedule.
	Schedule Schedule
	// FailingLimit is how long an endpoint may do nothing but fail before it is disabled. Default 120 h.
	FailingLimit time.Duration
	// ShutdownTimeout bounds the wait for attempts under way. Default 20 s.
	ShutdownTimeout time.Duration

	Log *slog.Logger
}

// DefaultOptions returns Options with every default filled in.
func DefaultOptions() Options {
	return Options{
		CredentialsNamespace: "merchant-operator-credentials",
		OpsAddress:           ":9090",
		Lease:                30 * time.Second,
		Concurrency:          8,
		MaxInFlight:          512,
		Schedule:             DefaultSchedule(),
		FailingLimit:         120 * time.Hour,
		ShutdownTimeout:      20 * time.Second,
		Log:                  slog.Default(),
	}
}

// Validate says which option cannot work. What the store decides about its own is not repeated.
func (o Options) Validate() error {
	if o.CredentialsNamespace == "" {
		return errors.New("the credentials namespace is missing")
	}
	return nil
}

// Run dispatches until ctx ends, then drains: it leases nothing more, finishes the attempts under way and hands the
// rest back. It returns nil after a clean drain.
func Run(ctx context.Context, options Options) error {
	return errors.New("not built yet")
}
