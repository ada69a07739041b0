package apiserver

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// edge is what every listener for requests has around its routes.
type edge struct {
	log     *slog.Logger
	metrics *metrics
	// draining reports whether clients should look for another replica.
	draining func() bool
	// tracer makes spans of requests; nil: none. believes says whose word on traces and request ids counts.
	tracer   *tracing.Tracer
	believes func(*http.Request) bool
	// accessLog logs each request at INFO, with an id; else at DEBUG.
	accessLog bool
}

// observe counts and logs each request, answers for a handler that panics, and sets the headers
// that belong on every answer.
func (e edge) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		recorder := &statusRecorder{ResponseWriter: w}
		r, span := e.trace(r)
		e.metrics.inFlight.Inc()
		defer e.metrics.inFlight.Dec()
		defer func() {
			if problem := recover(); problem != nil {
				e.recovered(recorder, r, problem)
			}
			e.record(recorder, r, time.Since(start))
			span.Answered(knownMethod(r.Method), route(r.Pattern), recorder.status)
		}()
		header := w.Header()
		header["X-Content-Type-Options"], header["Cache-Control"] = noSniff, noStore
		if e.accessLog {
			header.Set(requestIDHeader, e.requestID(r))
		}
		if e.draining() {
			header.Set("Connection", "close")
		}
		next.ServeHTTP(recorder, r)
	})
}

func (e edge) trace(r *http.Request) (*http.Request, tracing.Span) {
	if e.tracer == nil {
		return r, tracing.Span{}
	}
	return e.tracer.Receive(r, e.believes(r))
}

func (e edge) recovered(w *statusRecorder, r *http.Request, problem any) {
	if problem == http.ErrAbortHandler { //nolint:errorlint // it is a sentinel to panic with, never wrapped
		panic(problem)
	}
	e.log.Error("a handler panicked", "route", r.Pattern, "panic", fmt.Sprint(problem), "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // half an answer must not look like one
	}
	e.refuse(w, r, fmt.Errorf("panic in %s", r.Pattern))
}

// statusRecorder remembers the status of an answer; 0: none was written yet.
type statusRecorder struct {
	http.ResponseWriter

	status int
}

// WriteHeader remembers the status.
func (s *statusRecorder) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write remembers the status that is implied.
func (s *statusRecorder) Write(body []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return s.ResponseWriter.Write(body)
}

// Unwrap is for http.ResponseController.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// canonical answers paths that ServeMux would redirect from: a redirected POST is a lost charge.
func (e edge) canonical(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		escaped := r.URL.EscapedPath()
		clean := path.Clean(escaped)
		if strings.HasSuffix(escaped, "/") && clean != "/" {
			clean += "/"
		}
		if clean != escaped || !strings.HasPrefix(escaped, "/") {
			e.refuse(w, r, errNoRoute)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// cors lets browsers read the answers of the API, and answers their preflight for any of its paths.
// Only the public status is meant for them; the rest is guarded by a key browsers do not have.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/v1/") {
			next.ServeHTTP(w, r)
			return
		}
		header := w.Header()
		header["Access-Control-Allow-Origin"] = anyOrigin
		if r.Method == http.MethodOptions {
			header.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
			header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key")
			header.Set("Access-Control-Max-Age", "86400")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if r.Header["Origin"] != nil { // else it is no browser's script that asks
			header["Access-Control-Expose-Headers"] = exposed
		}
		next.ServeHTTP(w, r)
	})
}

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
