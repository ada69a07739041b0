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

// base is what the public and the internal API share: middleware, error responses, metrics and log.
type base struct {
	log     *slog.Logger
	metrics *metrics
	// draining reports whether clients should look for another replica.
	draining func() bool
	// tracer makes spans of requests; nil: none. trusted reports whether to use the trace and request ids of the client.
	tracer  *tracing.Tracer
	trusted func(*http.Request) bool
	// accessLog logs each request at INFO, with an id; else at DEBUG.
	accessLog bool
}

// observe counts and logs each request, responds if a handler panics, and sets the headers of every response.
func (b base) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		recorder := &statusRecorder{ResponseWriter: w}
		r, span := b.trace(r)
		b.metrics.inFlight.Inc()
		defer b.metrics.inFlight.Dec()
		defer func() {
			if problem := recover(); problem != nil {
				b.recoverPanic(recorder, r, problem)
			}
			b.logRequest(recorder, r, time.Since(start))
			span.EndRequest(knownMethod(r.Method), route(r.Pattern), recorder.status)
		}()
		header := w.Header()
		header["X-Content-Type-Options"], header["Cache-Control"] = noSniff, noStore
		if b.accessLog {
			header.Set(requestIDHeader, b.requestID(r))
		}
		if b.draining() {
			header.Set("Connection", "close")
		}
		next.ServeHTTP(recorder, r)
	})
}

func (b base) trace(r *http.Request) (*http.Request, tracing.Span) {
	if b.tracer == nil {
		return r, tracing.Span{}
	}
	return b.tracer.StartRequest(r, b.trusted(r))
}

func (b base) recoverPanic(w *statusRecorder, r *http.Request, problem any) {
	if problem == http.ErrAbortHandler { //nolint:errorlint // it is a sentinel to panic with, never wrapped
		panic(problem)
	}
	b.log.Error("a handler panicked", "route", r.Pattern, "panic", fmt.Sprint(problem), "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // a partial response must not look complete
	}
	b.respondError(w, r, fmt.Errorf("panic in %s", r.Pattern))
}

// statusRecorder records the status of a response; 0: not written yet.
type statusRecorder struct {
	http.ResponseWriter

	status int
}

// WriteHeader records the status.
func (s *statusRecorder) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write records the implied status.
func (s *statusRecorder) Write(body []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return s.ResponseWriter.Write(body)
}

// Unwrap is for http.ResponseController.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// canonical responds 404 to paths that ServeMux would redirect: a redirected POST is a lost charge.
func (b base) canonical(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		escaped := r.URL.EscapedPath()
		clean := path.Clean(escaped)
		if strings.HasSuffix(escaped, "/") && clean != "/" {
			clean += "/"
		}
		if clean != escaped || !strings.HasPrefix(escaped, "/") {
			b.respondError(w, r, errNoRoute)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// cors lets browsers read the API's responses, and handles their preflight requests. Browsers need the public status only;
// for the rest they have no key.
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
		if r.Header["Origin"] != nil { // a script in a browser
			header["Access-Control-Expose-Headers"] = exposedHeaders
		}
		next.ServeHTTP(w, r)
	})
}

// requestIDHeader identifies a request in the log.
const requestIDHeader = "X-Request-Id"

// requestIDForm limits what a proxy may put into the log as an id.
var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID is the id given by a trusted proxy, or a new one.
func (b base) requestID(r *http.Request) string {
	if given := r.Header.Get(requestIDHeader); b.trusted(r) && requestIDForm.MatchString(given) {
		return given
	}
	return rand.Text()
}

// logRequest counts and logs a finished request. It logs the route and never the path, which has the session id.
func (b base) logRequest(w *statusRecorder, r *http.Request, took time.Duration) {
	b.metrics.observe(r.Method, r.Pattern, w.status, took)
	if !b.accessLog {
		if b.log.Enabled(r.Context(), slog.LevelDebug) { // avoids allocating arguments that are not logged
			b.log.Debug("request", "method", r.Method, "route", r.Pattern, "status", w.status, "duration", took)
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
	b.log.LogAttrs(r.Context(), slog.LevelInfo, "request", attributes...)
}
