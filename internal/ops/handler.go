package ops

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Replica is what the handler reports. Readers and Profiles may be empty.
type Replica struct {
	Phase *Phase
	Redis Redis
	// Age is how far the index of published objects is behind, at most. A replica of MaxAge is not ready.
	Age    func() time.Duration
	MaxAge time.Duration
	// Readers says who may read the metrics and the profiles; nil: everybody.
	Readers *Guard
	// Profiles are served as well.
	Profiles bool
}

// Redis can be asked whether it answers and keeps what it is given.
type Redis interface {
	Check(ctx context.Context) error
}

// NewRegistry returns a registry with the metrics of every Go program.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// NewHandler serves /healthz, /readyz and /metrics, and /debug/pprof/ if it is wanted.
func NewHandler(ctx context.Context, replica Replica, registry *prometheus.Registry, log *slog.Logger) http.Handler {
	promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "merchant_operator_redis_up",
		Help: "1 when Redis answers and keeps what it is given, asked at each scrape.",
	}, func() float64 {
		if replica.Redis.Check(context.WithoutCancel(ctx)) != nil {
			return 0
		}
		return 1
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", replica.readyz)
	mux.Handle("GET "+Path, replica.Readers.Protect(promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	})))
	if replica.Profiles {
		mux.Handle(ProfilesPath, replica.Readers.Protect(Profiles()))
	}
	return mux
}

// healthz says that the process answers; a restart would mend nothing else.
func healthz(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, map[string]any{"status": "ok"})
}

// readyz says whether to route requests here. A replica that has not heard of the Kubernetes API for
// as long as overrides are kept may have missed a revocation for good, so it is not ready. Redis is
// told but does not decide: when it is away it is away for every replica, and an honest 503 with
// Retry-After is better than no endpoints at all.
func (r Replica) readyz(w http.ResponseWriter, request *http.Request) {
	status := http.StatusServiceUnavailable
	age := r.Age()
	if r.Phase.Is(Serving) && age < r.MaxAge {
		status = http.StatusOK
	}
	redis := "ok"
	if err := r.Redis.Check(request.Context()); err != nil {
		redis = err.Error()
	}
	respond(w, status, map[string]any{
		"phase":               r.Phase.word.Load(),
		"redis":               redis,
		"directoryAgeSeconds": int64(age.Seconds()),
	})
}

func respond(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // words and numbers can be written, and who asked may be gone
}

// Phase is where a replica stands in its life.
type Phase struct{ word atomic.Value }

// The phases, as /readyz names them. Only a serving replica is ready.
const (
	Syncing  = "syncing"
	Serving  = "serving"
	Draining = "draining"
)

// NewPhase returns the first phase, Syncing.
func NewPhase() *Phase {
	p := &Phase{}
	p.Set(Syncing)
	return p
}

// Set begins a phase.
func (p *Phase) Set(word string) { p.word.Store(word) }

// Is reports whether it is the phase now.
func (p *Phase) Is(word string) bool { return p.word.Load() == word }
