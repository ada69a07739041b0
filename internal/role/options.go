package role

import (
	"errors"
	"log/slog"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/merchant-operator/merchant-operator/internal/ops"
)

// Options are those of every role of the data plane. Start from DefaultOptions; only RedisURL has no default.
type Options struct {
	// Kubeconfig is a file; empty: $KUBECONFIG, then the service account of the pod.
	Kubeconfig string
	// RedisURL has the forms of redis.Open. It may contain a password and is never logged.
	RedisURL string
	// Ops is the port of health and metrics.
	Ops ops.Options

	// RedisTimeout bounds each operation on Redis. Default 300 ms.
	RedisTimeout time.Duration
	// DrainDelay is the time between becoming unready and closing the listeners, for load balancers. Default 5 s.
	DrainDelay time.Duration
	// ShutdownTimeout is the maximum wait for what is in progress after that. Default 20 s.
	ShutdownTimeout time.Duration

	// Spans receives the trace spans. Default: the exporter configured by OTEL_* variables.
	Spans sdktrace.SpanProcessor
	// Now is the clock of the process. Default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// DefaultOptions returns Options with every default filled in.
func DefaultOptions() Options {
	return Options{
		Ops: ops.DefaultOptions(), RedisTimeout: 300 * time.Millisecond, DrainDelay: 5 * time.Second, ShutdownTimeout: 20 * time.Second,
		Now: time.Now, Log: slog.Default(),
	}
}

// Validate names the flag of an invalid option.
func (o Options) Validate() error {
	switch {
	case o.RedisURL == "":
		return errors.New("set --redis-url or REDIS_URL")
	case o.DrainDelay < 0:
		return errors.New("--drain-delay must not be negative")
	case o.ShutdownTimeout <= 0:
		return errors.New("ShutdownTimeout must be positive")
	case o.Now == nil || o.Log == nil:
		return errors.New("set Now and Log; start from DefaultOptions")
	}
	return o.Ops.Validate()
}
