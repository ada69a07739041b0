package apiserver

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
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
	// accessLog logs each request at INFO; else at DEBUG.
	accessLog bool
}

// observe counts and logs each request, responds if a handler panics, and sets the headers of every response.
func (b base) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		recorder := &statusRecorder{ResponseWriter: w}
		r, span := b.trace(r)
		id := b.requestID(r)
		b.metrics.inFlight.Inc()
		defer b.metrics.inFlight.Dec()
		defer func() {
			if problem := recover(); problem != nil {
				b.recoverPanic(recorder, r, problem)
			}
			b.logRequest(recorder, r, time.Since(start)-recorder.held)
			span.EndRequest(knownMethod(r.Method), route(r.Pattern), recorder.status, id)
		}()
		header := w.Header()
		header["X-Content-Type-Options"], header["Cache-Control"] = noSniff, noStore
		header[requestIDHeader] = []string{id}
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
	held   time.Duration
	// refusedStream: over a budget of streams. It has a metric of its own, so that one client cannot raise the alert on errors.
	refusedStream bool
	// testMode: with a test key, or about a test session. Such requests are in no figure of live ones.
	testMode bool
}

func countAsTest(w http.ResponseWriter) {
	if recorder, ok := w.(*statusRecorder); ok {
		recorder.testMode = true
	}
}

func countedAsTest(w http.ResponseWriter) bool {
	recorder, ok := w.(*statusRecorder)
	return ok && recorder.testMode
}

func refuseStream(w http.ResponseWriter) {
	if recorder, ok := w.(*statusRecorder); ok {
		recorder.refusedStream = true
	}
}

// hold runs a wait for something that is not up to this service. It is not part of the request's duration, in the histogram and in the
// log, and the request is not in flight: else streams would hide how fast all others are.
func (b base) hold(w http.ResponseWriter, wait func()) {
	start := time.Now()
	b.metrics.inFlight.Dec()
	defer func() {
		b.metrics.inFlight.Inc()
		if recorder, ok := w.(*statusRecorder); ok {
			recorder.held += time.Since(start)
		}
	}()
	wait()
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

// Hijack records the status of the response that the hijacker writes.
func (s *statusRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err == nil {
		s.status = http.StatusOK
	}
	return conn, buffered, err
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

// requestIDHeader identifies a request in the log and in traces.
const requestIDHeader = "X-Request-Id"

// requestIDForm limits what a proxy may put into the log as an id.
var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID is the id given by a trusted proxy, or a new one.
func (b base) requestID(r *http.Request) string {
	if given := r.Header.Get(requestIDHeader); given != "" && b.trusted(r) && requestIDForm.MatchString(given) {
		return given
	}
	const base = 36
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return strconv.FormatUint(binary.BigEndian.Uint64(id[:]), base)
}

// logRequest counts and logs a finished request. It logs the route and never the path, which has the session id.
func (b base) logRequest(w *statusRecorder, r *http.Request, took time.Duration) {
	switch {
	case w.refusedStream:
	case w.testMode:
		b.metrics.test.WithLabelValues(knownMethod(r.Method), route(r.Pattern), strconv.Itoa(w.status)).Inc()
	default:
		b.metrics.observe(r.Method, r.Pattern, w.status, took)
	}
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
	if w.held > 0 {
		attributes = append(attributes, slog.Duration("held", w.held))
	}
	if trace := tracing.TraceID(r.Context()); trace != "" {
		attributes = append(attributes, slog.String("traceID", trace))
	}
	b.log.LogAttrs(r.Context(), slog.LevelInfo, "request", attributes...)
}

// metrics of requests. No label has a value that a client chooses.
type metrics struct {
	inFlight     prometheus.Gauge
	durations    *prometheus.HistogramVec
	test         *prometheus.CounterVec
	unauthorized *prometheus.CounterVec
	limited      *prometheus.CounterVec
	rotations    *prometheus.CounterVec
	unstored     *prometheus.CounterVec
}

// The modes of sessions, as metric labels.
const (
	modeLive = "live"
	modeTest = "test"
)

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	m := &metrics{
		inFlight: factory.NewGauge(prometheus.GaugeOpts{
			Name: "merchant_operator_http_requests_in_flight",
			Help: "HTTP requests in progress.",
		}),
		durations: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "merchant_operator_http_request_duration_seconds",
			Help:    "Duration of HTTP requests, by method, route and status. 499: the client disconnected. Without requests of test mode.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"method", "route", "status"}),
		test: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_http_test_requests_total",
			Help: "HTTP requests of test mode, by method, route and status. No other counter or histogram of requests has them.",
		}, []string{"method", "route", "status"}),
		unauthorized: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_http_unauthorized_total",
			Help: "Requests with response 401, by reason. Clients do not see the reason.",
		}, []string{"reason"}),
		limited: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_http_rate_limited_total",
			Help: "Requests with response 429, by limit: of the merchant, of the client address, or of the rotations of an ApiKey.",
		}, []string{"limit"}),
		rotations: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_key_rotations_total",
			Help: "API keys issued, by cause of the rotation.",
		}, []string{"cause"}),
		unstored: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_refused_payments_unstored_total",
			Help: "Reports of refused payments that were answered as ever but not stored, as their session keeps no more of them, by mode: live or test.",
		}, []string{"mode"}),
	}
	// Counters start at 0, so that rate() sees the first increase.
	for _, reason := range unauthorizedReasons() {
		m.unauthorized.WithLabelValues(reason)
	}
	for _, limit := range []string{merchantQuota, addressQuota, rotationQuota} {
		m.limited.WithLabelValues(limit)
	}
	m.rotations.WithLabelValues(string(v1alpha1.RotationAPI))
	for _, mode := range []string{modeLive, modeTest} {
		m.unstored.WithLabelValues(mode)
	}
	return m
}

func (m *metrics) observe(method, pattern string, status int, took time.Duration) {
	m.durations.WithLabelValues(knownMethod(method), route(pattern), strconv.Itoa(status)).Observe(took.Seconds())
}

// route is the pattern that matched a request; empty for preflights and unknown paths.
func route(pattern string) string {
	if pattern == "/" {
		return ""
	}
	return pattern
}

// knownMethod limits the label values, because clients can invent methods.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions:
		return method
	}
	return "other"
}
