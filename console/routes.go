package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// signedInHandler handles a request of a person who is signed in. Its error becomes a page (respondError).
type signedInHandler func(http.ResponseWriter, *http.Request, login) error

// handler has every route.
func (c *console) handler() http.Handler {
	mux := http.NewServeMux()
	open := func(pattern string, handle func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := handle(w, r); err != nil {
				c.respondError(w, r, nil, err)
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
	signedIn("GET /merchants/{namespace}/{name}", c.showMerchant)
	signedIn("/", func(http.ResponseWriter, *http.Request, login) error { return errNotFound })
	return c.observe(c.protect(mux))
}

// Limits of a request.
const (
	maxForm        = 64 << 10 // bytes
	requestTimeout = 10 * time.Second
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

// Errors that become pages.
var (
	// errNotFound is the answer to what does not exist and to what the person may not see.
	errNotFound    = errors.New("not found")
	errCrossOrigin = errors.New("the form comes from another site")
	errHost        = errors.New("the host name is not that of --external-url")
)

// problem is the page of an error.
type problem struct {
	status         int
	Title, Message string
	// SignIn offers to sign in, Retry to send the same form again.
	SignIn bool
	Retry  url.Values
	Path   string
}

// respondError writes the page of an error. current is nil if nobody is signed in, or it is not known.
func (c *console) respondError(w http.ResponseWriter, r *http.Request, current *login, err error) {
	if errors.Is(err, errSignedOut) && r.Method == http.MethodGet {
		http.Redirect(w, r, signInPath+"?"+url.Values{"returnTo": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
		return
	}
	page := c.problemOf(err)
	if errors.Is(err, errSignedOut) && r.ParseForm() == nil {
		page.Retry, page.Path = r.PostForm, r.URL.Path
	}
	switch page.status {
	case http.StatusInternalServerError:
		c.log.Error("request failed", "route", r.Pattern, "error", err)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
		c.log.Warn("request failed", "route", r.Pattern, "error", err)
	}
	if err := c.render(w, page.status, "problem", view{Title: page.Title, Login: current, Data: page}); err != nil {
		c.log.Error("could not write a page", "error", err)
	}
}

func (c *console) problemOf(err error) problem {
	switch {
	case errors.Is(err, errSignedOut):
		return problem{status: http.StatusUnauthorized, Title: "Your sign-in has ended", Message: "Nothing was changed. Sign in again, then send the form again.", SignIn: true}
	case errors.Is(err, errNotFound):
		return problem{status: http.StatusNotFound, Title: "Not found", Message: "This page does not exist, or you have no right to see it. The platform team gives rights."}
	case errors.Is(err, errCrossOrigin):
		return problem{status: http.StatusForbidden, Title: "Refused", Message: "The form was sent from another site. Nothing was changed. Open the console and use the form there."}
	case errors.Is(err, errHost):
		return problem{status: http.StatusMisdirectedRequest, Title: "Wrong address", Message: "The address of the console is " + c.origin.String() + "."}
	case errors.Is(err, errProvider):
		return problem{status: http.StatusServiceUnavailable, Title: "Sign-in is not available", Message: "The identity provider does not answer. Try again in a minute. If you are signed in elsewhere, you stay signed in.", SignIn: true}
	case errors.Is(err, errAttempt), errors.Is(err, errToken):
		return problem{status: http.StatusBadRequest, Title: "Sign-in failed", Message: "The sign-in is too old, was used before, or was begun elsewhere. Sign in again.", SignIn: true}
	case errors.Is(err, errClaims):
		return problem{status: http.StatusForbidden, Title: "Sign-in failed", Message: "The identity provider sent no user name that the console accepts. Ask the platform team to check --oidc-username-claim."}
	case errors.Is(err, redis.ErrUnavailable), errors.Is(err, authz.ErrUnavailable), errors.Is(err, errKubernetes), errors.Is(err, context.DeadlineExceeded):
		return problem{status: http.StatusServiceUnavailable, Title: "Temporarily unavailable", Message: "The console cannot reach a service that it needs. Try again in a minute. Keys keep working."}
	}
	return problem{status: http.StatusInternalServerError, Title: "Something went wrong", Message: "Try again. If it happens again, tell the platform team when it happened."}
}
