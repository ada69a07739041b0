package apiserver

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

// phase is where this replica stands in its life.
type phase struct{ word atomic.Value }

// The phases, as /readyz names them. Only a serving replica is ready.
const (
	syncing  = "syncing"
	serving  = "serving"
	draining = "draining"
)

func newPhase() *phase {
	p := &phase{}
	p.set(syncing)
	return p
}

func (p *phase) set(word string)     { p.word.Store(word) }
func (p *phase) is(word string) bool { return p.word.Load() == word }

// opsHandler serves probes and metrics.
type opsHandler struct {
	phase *phase
	redis *store.Store
	// age is how far the directory is behind, at most.
	age func() time.Duration
}

func newOpsHandler(ctx context.Context, ops opsHandler, registry *prometheus.Registry, log *slog.Logger) http.Handler {
	promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "merchant_operator_redis_up",
		Help: "1 when Redis answers and keeps what it is given, asked at each scrape.",
	}, func() float64 {
		if ops.redis.Check(context.WithoutCancel(ctx)) != nil {
			return 0
		}
		return 1
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", ops.healthz)
	mux.HandleFunc("GET /readyz", ops.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}))
	return mux
}

// healthz says that the process answers; a restart would mend nothing else.
func (o opsHandler) healthz(w http.ResponseWriter, _ *http.Request) {
	_ = respond(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz says whether to route requests here. A replica that has not heard of the Kubernetes API for as
// long as overrides are kept may have missed a revocation for good, so it is not ready. Redis is told but does not decide: when it is away it
// is away for every replica, and an honest 503 with Retry-After is better than no endpoints at all.
func (o opsHandler) readyz(w http.ResponseWriter, r *http.Request) {
	status := http.StatusServiceUnavailable
	age := o.age()
	if o.phase.is(serving) && age < store.OverrideLifetime {
		status = http.StatusOK
	}
	redis := "ok"
	if err := o.redis.Check(r.Context()); err != nil {
		redis = err.Error()
	}
	_ = respond(w, status, map[string]any{
		"phase":               o.phase.word.Load(),
		"redis":               redis,
		"directoryAgeSeconds": int64(age.Seconds()),
	})
}
