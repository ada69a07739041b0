package ops

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health is what the ops port reports. Guard and Profiles are optional.
type Health struct {
	Phase *Phase
	Redis Redis
	// Age is the age of the index of published objects. At MaxAge the replica is not ready.
	Age    func() time.Duration
	MaxAge time.Duration
	// Guard protects metrics and profiles; nil: everybody may read them.
	Guard *Guard
	// Profiles are served too.
	Profiles bool
}

// NewRegistry returns a registry with the metrics of every Go program.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// NewHandler serves /healthz, /readyz and /metrics, and /debug/pprof/ with Profiles.
func NewHandler(health Health, registry *prometheus.Registry, log *slog.Logger) http.Handler {
	redis := &probe{redis: health.Redis}
	registry.MustRegister(redis)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		health.readyz(w, redis) //nolint:contextcheck // a look at Redis is shared, and outlives its callers
	})
	mux.Handle("GET "+MetricsPath, health.Guard.Protect(promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	})))
	if health.Profiles {
		mux.Handle(ProfilesPath, health.Guard.Protect(Profiles()))
	}
	return mux
}

// healthz is ok while the process responds. A restart would repair nothing else.
func healthz(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, map[string]any{"status": "ok"})
}

// readyz reports whether to send requests here. A replica whose watch is older than the lifetime of overrides may have missed a
// revocation and is not ready. Redis is reported but does not count: without it every replica responds 503 with Retry-After,
// which is better than no endpoints at all.
func (h Health) readyz(w http.ResponseWriter, probe *probe) {
	status := http.StatusServiceUnavailable
	age := h.Age()
	if h.Phase.Is(Serving) && age < h.MaxAge {
		status = http.StatusOK
	}
	redis := "ok"
	if err := probe.health().Err; err != nil {
		redis = err.Error()
	}
	respond(w, status, map[string]any{
		"phase":               h.Phase.name.Load(),
		"redis":               redis,
		"directoryAgeSeconds": int64(age.Seconds()),
	})
}

func respond(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // strings and numbers can be encoded, and the client may have disconnected
}
