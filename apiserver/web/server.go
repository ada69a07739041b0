// Package web is the transport of the API: it routes a request to its handler, reads bodies, responds, and counts and logs each request
// once. It knows no room of the API; what it has to say of an error, Options.Answer decides.
package web

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// Handler responds to a request, or returns an error for Options.Answer.
type Handler func(e *Event, w http.ResponseWriter, r *http.Request) error

// Methods are the handlers of one path. HEAD is handled by GET.
type Methods map[string]Handler

// Routes are the paths of a listener, as patterns of http.ServeMux without a method.
type Routes map[string]Methods

// ErrNoRoute is a path that is not there.
var ErrNoRoute = errors.New("path not found")

// MethodError is a method that the path does not have. It says which ones it has.
type MethodError struct{ Methods []string }

func (e MethodError) Error() string {
	return "method not allowed; use " + strings.Join(e.Methods, " or ")
}

// Options of a Server. Tracer, Finished and CrossOrigin are optional.
type Options struct {
	Log *slog.Logger
	// AccessLog logs each request at INFO; else at DEBUG.
	AccessLog bool
	// Draining reports whether clients should look for another replica.
	Draining func() bool
	// Tracer makes spans of requests. Trusted reports whether to use the trace and request ids of the client.
	Tracer  *tracing.Tracer
	Trusted func(*http.Request) bool
	// Answer returns the response to an error.
	Answer func(error) Answer
	// Finished takes each request at its end, before it is logged.
	Finished func(*Event)
	// CrossOrigin is the prefix of the paths that scripts of any origin may call. Browsers need the public status only; for the rest they
	// have no key.
	CrossOrigin string
}

// Server serves the routes of one listener.
type Server struct {
	Options

	metrics *Metrics
	mux     *http.ServeMux
}

// New returns a Server of routes. Unlike a mux of net/http, it responds to other requests with a JSON error. OPTIONS of any path below
// CrossOrigin is a CORS preflight.
func New(options Options, metrics *Metrics, routes Routes) *Server {
	s := &Server{Options: options, metrics: metrics, mux: http.NewServeMux()}
	for pattern, methods := range routes {
		s.handle(pattern, s.dispatch(pattern, methods))
	}
	s.handle("/", noRoute)
	return s
}

func (s *Server) handle(pattern string, next Handler) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, next) })
}

// dispatch routes by method.
func (s *Server) dispatch(pattern string, methods Methods) Handler {
	allow, known := s.allow(pattern, methods), slices.Sorted(maps.Keys(methods))
	return func(e *Event, w http.ResponseWriter, r *http.Request) error {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		next, ok := methods[method]
		if !ok {
			w.Header().Set("Allow", allow)
			return MethodError{known}
		}
		return next(e, w, r)
	}
}

// allow is the value of Allow (RFC 9110).
func (s *Server) allow(pattern string, methods Methods) string {
	allowed := slices.Collect(maps.Keys(methods))
	if _, ok := methods[http.MethodGet]; ok {
		allowed = append(allowed, http.MethodHead)
	}
	if s.crossOrigin(pattern) {
		allowed = append(allowed, http.MethodOptions)
	}
	slices.Sort(allowed)
	return strings.Join(allowed, ", ")
}

func noRoute(*Event, http.ResponseWriter, *http.Request) error { return ErrNoRoute }

func (s *Server) crossOrigin(requested string) bool {
	return s.CrossOrigin != "" && strings.HasPrefix(requested, s.CrossOrigin)
}

// ServeHTTP handles preflights and refuses paths that ServeMux would redirect: a redirected POST is a lost charge.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodOptions && s.crossOrigin(r.URL.Path):
		s.serve(w, r, preflight)
	case !canonical(r.URL.EscapedPath()):
		s.serve(w, r, noRoute)
	default:
		s.mux.ServeHTTP(w, r)
	}
}

func canonical(escaped string) bool {
	clean := path.Clean(escaped)
	if strings.HasSuffix(escaped, "/") && clean != "/" {
		clean += "/"
	}
	return clean == escaped && strings.HasPrefix(escaped, "/")
}

func preflight(_ *Event, w http.ResponseWriter, _ *http.Request) error {
	header := w.Header()
	header.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key")
	header.Set("Access-Control-Max-Age", "86400")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// serve sets the headers of every response, calls the handler, responds to its error or if it panics, and counts and logs the request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, next Handler) {
	start := time.Now()
	e := &Event{server: s, recorder: recorder{ResponseWriter: w}}
	if r.Body != nil && r.Body != http.NoBody {
		copied := *r // the server looks at the body of its own request after the response
		e.body.ReadCloser, copied.Body = r.Body, &e.body
		r = &copied
	}
	r, span := s.trace(r)
	id := s.requestID(r)
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	defer func() {
		if problem := recover(); problem != nil {
			e.recoverPanic(r, problem)
		}
		s.finish(e, r, time.Since(start)-e.held)
		span.SetCaller(e.MerchantID, e.KeyID)
		span.EndRequest(knownMethod(r.Method), route(r.Pattern), e.Status(), id)
	}()
	header := w.Header()
	header["X-Content-Type-Options"], header["Cache-Control"] = noSniff, noStore
	header[requestIDHeader] = []string{id}
	if s.Draining() {
		header.Set("Connection", "close")
	}
	if s.crossOrigin(r.URL.Path) {
		header["Access-Control-Allow-Origin"] = anyOrigin
		if r.Header["Origin"] != nil && r.Method != http.MethodOptions { // a script in a browser
			header["Access-Control-Expose-Headers"] = exposedHeaders
		}
	}
	if err := next(e, &e.recorder, r); err != nil {
		e.respondError(&e.recorder, r, err)
	}
}

func (s *Server) trace(r *http.Request) (*http.Request, tracing.Span) {
	if s.Tracer == nil {
		return r, tracing.Span{}
	}
	return s.Tracer.StartRequest(r, s.Trusted(r))
}

func (e *Event) recoverPanic(r *http.Request, problem any) {
	if problem == http.ErrAbortHandler { //nolint:errorlint // it is a sentinel to panic with, never wrapped
		panic(problem)
	}
	e.server.Log.Error("a handler panicked", "route", r.Pattern, "panic", fmt.Sprint(problem), "stack", string(debug.Stack()))
	if e.Status() != 0 {
		panic(http.ErrAbortHandler) // a partial response must not look complete
	}
	e.respondError(&e.recorder, r, fmt.Errorf("panic in %s", r.Pattern))
}

// requestIDHeader identifies a request in the log and in traces.
const requestIDHeader = "X-Request-Id"

// requestIDForm limits what a proxy may put into the log as an id.
var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID is the id given by a trusted proxy, or a new one.
func (s *Server) requestID(r *http.Request) string {
	if given := r.Header.Get(requestIDHeader); given != "" && s.Trusted(r) && requestIDForm.MatchString(given) {
		return given
	}
	const base = 36
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return strconv.FormatUint(binary.BigEndian.Uint64(id[:]), base)
}

// finish counts and logs a finished request. It logs the route and never the path, which has the session id.
func (s *Server) finish(e *Event, r *http.Request, took time.Duration) {
	if s.Finished != nil {
		s.Finished(e)
	}
	s.metrics.count(e, r, took)
	if !s.AccessLog {
		if s.Log.Enabled(r.Context(), slog.LevelDebug) { // avoids allocating arguments that are not logged
			s.Log.Debug("request", "method", r.Method, "route", r.Pattern, "status", e.Status(), "duration", took)
		}
		return
	}
	attributes := []slog.Attr{
		slog.String("method", knownMethod(r.Method)), slog.String("route", route(r.Pattern)), slog.Int("status", e.Status()),
		slog.Duration("duration", took), slog.String("requestID", e.RequestID()),
	}
	if e.KeyID != "" {
		attributes = append(attributes, slog.String("merchantID", e.MerchantID), slog.String("keyID", e.KeyID))
	}
	if e.held > 0 {
		attributes = append(attributes, slog.Duration("held", e.held))
	}
	if trace := tracing.TraceID(r.Context()); trace != "" {
		attributes = append(attributes, slog.String("traceID", trace))
	}
	s.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", attributes...)
}
