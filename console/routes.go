package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
)

// signedInHandler handles a request of a person who is signed in. Its error becomes a page (respondError).
type signedInHandler func(http.ResponseWriter, *http.Request, login) error

// handler has every route.
func (c *console) handler() http.Handler {
	mux := http.NewServeMux()
	open := func(pattern string, handle func(http.ResponseWriter, *http.Request) error) {
		method, route, known := strings.Cut(pattern, " ")
		if !known {
			method = "other"
		}
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r, span := c.tracer.StartRequest(r, false)
			recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
			defer func() { span.EndRequest(method, route, recorder.status, "") }()
			err := c.admit(r)
			if err == nil {
				err = handle(recorder, r)
			}
			if err != nil {
				c.respondError(recorder, r, nil, err)
			}
		})
	}
	signedIn := func(pattern string, handle signedInHandler) {
		open(pattern, func(w http.ResponseWriter, r *http.Request) error {
			current, err := c.current(r.Context(), r)
			if err != nil {
				return err
			}
			if err := handle(w, r, current); err != nil {
				c.respondError(w, r, &current, err)
			}
			return nil
		})
	}

	mux.Handle("GET /assets/", c.pages.assets)
	open("GET "+signInPath, c.signIn)
	open("GET "+callbackPath, c.callback)
	open("GET /signed-out", c.signedOut)
	signedIn("POST /sign-out", c.signOut(c.logins.end))
	signedIn("POST /sign-out-everywhere", c.signOut(c.logins.endAll))

	signedIn("GET /{$}", c.listMerchants)
	const merchant, key = "/merchants/{namespace}/{name}", "/merchants/{namespace}/{name}/keys/{key}"
	signedIn("GET "+merchant, c.showMerchant)
	signedIn("GET "+merchant+"/new-key", c.newKeyForm)
	signedIn("POST "+merchant+"/new-key", c.issueKey)
	signedIn("GET "+key+"/rotate", c.keyAction(verbRotateKeys, "key-rotate"))
	signedIn("POST "+key+"/rotate", c.rotateKey)
	signedIn("GET "+key+"/disable", c.keyAction(verbIssueKeys, "key-disable"))
	signedIn("POST "+key+"/disable", c.disableKey)
	signedIn("GET "+key+"/delete", c.keyAction(verbIssueKeys, "key-delete"))
	signedIn("POST "+key+"/delete", c.deleteKey)
	signedIn("GET "+merchant+"/allowlist", c.allowlistForm)
	signedIn("POST "+merchant+"/allowlist", c.editAllowlist)
	signedIn("GET "+merchant+"/webhook", c.webhookForm)
	signedIn("POST "+merchant+"/webhook", c.editWebhook)
	signedIn("POST "+merchant+"/webhook/resume", c.resumeWebhook)
	signedIn("GET "+merchant+"/webhook/rotate-secret", c.signingSecretForm)
	signedIn("POST "+merchant+"/webhook/rotate-secret", c.rotateSigningSecret)
	signedIn("GET "+merchant+"/dead-letters/resend", c.resendDeadLettersForm)
	signedIn("POST "+merchant+"/dead-letters/resend", c.resendDeadLetters)
	signedIn("/", func(http.ResponseWriter, *http.Request, login) error { return errNotFound })
	return c.observe(c.protect(mux))
}

// Limits of a request.
const (
	maxForm        = 64 << 10 // bytes
	requestTimeout = 25 * time.Second
	writeTimeout   = requestTimeout + 3*time.Second
)

// protect sets the headers of every response, and refuses what a page of ours would not send.
func (c *console) protect(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.respondError(w, r, nil, errCrossOrigin) }))
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
		if c.secure {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		switch {
		case r.Host != c.origin.Host: // the name of another site may be made to lead here
			c.respondError(w, r, nil, errHost)
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "":
			c.respondError(w, r, nil, errCrossOrigin) // a browser says where a form comes from
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// admit counts a request of a client address, in memory: what is refused costs neither Redis nor the Kubernetes API anything.
// Errors: limitedError, clientaddr.ErrMalformed.
func (c *console) admit(r *http.Request) error {
	address, err := c.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	if err != nil {
		return err
	}
	if quota, allowed := c.limit.Allow(clientaddr.LimitKey(address)); !allowed {
		return limitedError{quota}
	}
	return nil
}

// observe counts requests and responds if a handler panics.
func (c *console) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := c.now()
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			if problem := recover(); problem != nil {
				if problem == http.ErrAbortHandler { //nolint:errorlint // it is a sentinel to panic with, never wrapped
					panic(problem)
				}
				c.log.Error("a handler panicked", "route", r.Pattern, "panic", fmt.Sprint(problem), "stack", string(debug.Stack()))
				c.respondError(recorder, r, nil, errors.New("panic"))
			}
			c.metrics.requests.WithLabelValues(strconv.Itoa(recorder.status)).Observe(c.now().Sub(start).Seconds())
		}()
		next.ServeHTTP(recorder, r)
	})
}

// statusRecorder records the status of a response.
type statusRecorder struct {
	http.ResponseWriter

	status int
}

// WriteHeader records the status.
func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}
