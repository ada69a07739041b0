package store

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// Options configure a Store. Only URL is required.
type Options struct {
	// URL says where Redis is; see link.Open for its forms. It may hold a password: it is never logged.
	URL string
	// Timeout bounds each operation, waiting for a connection included. Default 300 ms.
	Timeout time.Duration
	// PoolSize is the number of connections to each Redis server. Default 10 per CPU, 5 per CPU to
	// each server of a Redis Cluster.
	PoolSize int
	// SessionRetention is how long a session outlives its expiry. Default 72 h, at least 24 h: a
	// session must outlive the Idempotency-Key that names it. What a rail has reported of is kept for 30 days at least.
	SessionRetention time.Duration
	// SettlementReplicas is how many replicas of Redis must have a settlement before it is answered. Default 0: its master
	// alone.
	SettlementReplicas int
	// SettlementWait is how long to wait for them, beside Timeout. Default 300 ms.
	SettlementWait time.Duration
	// Log takes what the client says of its connections. The client has one log for the whole process: that of the Store which was
	// opened last. Default: nothing is logged, for each operation returns its error.
	Log *slog.Logger
	// Registerer takes the metrics of the operations. Default: nothing is counted.
	Registerer prometheus.Registerer
	// Tracer makes spans of the operations. Default: none.
	Tracer *tracing.Tracer
}

const (
	defaultTimeout   = 300 * time.Millisecond
	defaultRetention = 72 * time.Hour
	defaultWait      = 300 * time.Millisecond
)

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.SessionRetention == 0 {
		o.SessionRetention = defaultRetention
	}
	if o.SettlementWait == 0 {
		o.SettlementWait = defaultWait
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	if o.SessionRetention < idempotencyLifetime {
		return errors.New("session retention: must be at least 24 h, for as long an Idempotency-Key is remembered")
	}
	if o.SettlementReplicas < 0 || o.SettlementWait < time.Millisecond {
		return errors.New("settlement replicas: must not be negative, and be waited for at least 1 ms")
	}
	return nil
}
