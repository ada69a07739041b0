package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
)

// middleware is what every request passes. It is safe for concurrent use.
type middleware struct {
	problems *problems
	origin   *url.URL // of our pages
	clients  clientaddr.Resolver
	limit    *ratelimit.Limiter // of client addresses
	metrics  *metrics
	log      *slog.Logger
	now      func() time.Time
}

// protect sets the headers of every response, and refuses what a page of ours would not send.
func (m *middleware) protect(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.problems.respond(w, r, nil, errCrossOrigin) }))
	next = crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
		header.Set("Cache-Control", "no-store")
		if m.origin.Scheme == "https" {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		ctx, cancel := context.WithTimeout(r.Context(), web.RequestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		r.Host = canonicalHost(m.origin.Scheme, r.Host) // CrossOriginProtection compares it, too
		switch {
		case r.Host != m.origin.Host: // the name of another site may be made to lead here
			m.problems.respond(w, r, nil, errHost)
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "":
			m.problems.respond(w, r, nil, errCrossOrigin) // a browser says where a form comes from
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// admit counts a request of a client address, in memory: what is refused costs neither Redis nor the Kubernetes API anything.
// Errors: limitedError, clientaddr.ErrMalformed.
func (m *middleware) admit(r *http.Request) error {
	address, err := m.clientAddress(r)
	if err != nil {
		return err
	}
	if quota, allowed := m.limit.Allow(clientaddr.LimitKey(address)); !allowed {
		return limitedError{quota}
	}
	return nil
}

// clientAddress returns the client address of a request, or clientaddr.ErrMalformed.
func (m *middleware) clientAddress(r *http.Request) (netip.Addr, error) {
	return m.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
}

// observe counts requests and responds if a handler panics.
func (m *middleware) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := m.now()
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			if problem := recover(); problem != nil {
				if problem == http.ErrAbortHandler { //nolint:errorlint // it is a sentinel to panic with, never wrapped
					panic(problem)
				}
				m.log.Error("a handler panicked", "route", r.Pattern, "panic", fmt.Sprint(problem), "stack", string(debug.Stack()))
				m.problems.respond(recorder, r, nil, errors.New("panic"))
			}
			m.metrics.requests.WithLabelValues(strconv.Itoa(recorder.status)).Observe(m.now().Sub(start).Seconds())
		}()
		next.ServeHTTP(recorder, r)
	})
}

// statusRecorder records the status of a response.
type statusRecorder struct {
	http.ResponseWriter

	status int
}

// Unwrap is for http.ResponseController.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WriteHeader records the status.
func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}
