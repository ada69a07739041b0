package apiserver

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// requestIDHeader is by which a caller's complaint finds its line in the log.
const requestIDHeader = "X-Request-Id"

// requestIDForm keeps a proxy's id from being anything but one.
var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID is what a proxy that is believed calls the request, else a fresh id.
func (e edge) requestID(r *http.Request) string {
	if told := r.Header.Get(requestIDHeader); e.believes(r) && requestIDForm.MatchString(told) {
		return told
	}
	return rand.Text()
}

// record counts and logs a request that was answered. It never holds what identifies a payer or opens anything: the
// pattern stands for the path.
func (e edge) record(w *statusRecorder, r *http.Request, took time.Duration) {
	e.metrics.observe(r.Method, r.Pattern, w.status, took)
	if !e.accessLog {
		if e.log.Enabled(r.Context(), slog.LevelDebug) { // to ask is cheaper than to hand over what nobody logs
			e.log.Debug("request", "method", r.Method, "route", r.Pattern, "status", w.status, "duration", took)
		}
		return
	}
	attributes := []slog.Attr{
		slog.String("method", knownMethod(r.Method)), slog.String("route", route(r.Pattern)), slog.Int("status", w.status),
		slog.Duration("duration", took), slog.String("requestID", w.Header().Get(requestIDHeader)),
	}
	if trace := tracing.TraceID(r.Context()); trace != "" {
		attributes = append(attributes, slog.String("traceID", trace))
	}
	e.log.LogAttrs(r.Context(), slog.LevelInfo, "request", attributes...)
}
