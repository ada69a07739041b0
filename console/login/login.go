// Package login signs people in at an OpenID provider, and knows from then on who sends a request. Logins are in Redis.
package login

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// Options configure a Handler. All are required.
type Options struct {
	// Origin is where browsers see our pages: https, or http on a loopback address.
	Origin   *url.URL
	Provider ProviderOptions
	// Idle ends a login that was not used for this time; Lifetime ends every login.
	Idle, Lifetime time.Duration

	Redis      *redis.Client
	Registerer prometheus.Registerer
	Log        *slog.Logger
	Now        func() time.Time
}

// Handler handles the requests of a sign-in and a sign-out. It is safe for concurrent use.
type Handler struct {
	provider *provider
	logins   logins
	secure   bool // our pages are on https
	signIns  *prometheus.CounterVec
	log      *slog.Logger
	now      func() time.Time
}

// Paths on our origin.
const (
	SignInPath   = "/sign-in"
	CallbackPath = "/callback"
	// SignedOutPath is where a sign-out leads.
	SignedOutPath = "/signed-out"
)

// Results of a sign-in.
const (
	resultDone        = "done"
	resultRefused     = "refused"
	resultUnavailable = "unavailable"
)

// New returns a Handler. The error names the flag of an invalid option.
func New(options Options) (*Handler, error) {
	callback := *options.Origin
	callback.Path = CallbackPath
	provider, err := newProvider(options.Provider, callback.String())
	if err != nil {
		return nil, err
	}
	h := &Handler{
		provider: provider, logins: logins{options.Redis, options.Idle, options.Lifetime}, secure: options.Origin.Scheme == "https",
		log: options.Log, now: options.Now,
		signIns: promauto.With(options.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_console_sign_ins_total",
			Help: "Sign-ins at the console, by result: done, refused, unavailable (the identity provider does not answer).",
		}, []string{"result"}),
	}
	for _, result := range []string{resultDone, resultRefused, resultUnavailable} {
		h.signIns.WithLabelValues(result)
	}
	return h, nil
}

// Current returns who sends the request. Errors: ErrSignedOut, redis.ErrUnavailable, redis.ErrCorrupt.
func (h *Handler) Current(r *http.Request) (Person, error) {
	return h.logins.find(r.Context(), h.loginCookie(r))
}

func (h *Handler) isSignedIn(r *http.Request) bool {
	_, err := h.Current(r)
	return err == nil
}

const loginCookie = "console-login"

// cookieName adds a prefix with which a browser takes the cookie from this host only, over TLS only, and for all paths.
func (h *Handler) cookieName(name string) string {
	if h.secure {
		return "__Host-" + name
	}
	return name
}

// setCookie sets a cookie until the browser is closed, or at most for the lifetime if it has one; a negative one deletes it.
func (h *Handler) setCookie(w http.ResponseWriter, name, value string, lifetime time.Duration) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure is off on a loopback address only (Options.Origin)
		Name: h.cookieName(name), Value: value, Path: "/", MaxAge: int(lifetime.Seconds()),
		Secure: h.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode, // Lax: the provider's redirect must bring it
	})
}

func (h *Handler) cookie(r *http.Request, name string) string {
	cookie, err := r.Cookie(h.cookieName(name))
	if err != nil {
		return ""
	}
	return cookie.Value
}

func (h *Handler) loginCookie(r *http.Request) cookieValue {
	return cookieValue(h.cookie(r, loginCookie))
}

// SignIn sends the browser to the provider. The error is ErrProvider.
func (h *Handler) SignIn(w http.ResponseWriter, r *http.Request) error {
	a := newAttempt(h.now(), r.URL.Query().Get("returnTo"))
	target, err := h.provider.authorizeURL(r.Context(), a)
	if err != nil {
		h.signIns.WithLabelValues(resultUnavailable).Inc()
		return err
	}
	h.dropAttempts(w, r)
	h.setCookie(w, a.cookie(), a.encode(), attemptLifetime)
	http.Redirect(w, r, target, http.StatusSeeOther) //nolint:gosec // the provider's own address
	return nil
}

// maxAttempts is how many sign-ins a browser may have started. Their cookies come with each request.
const maxAttempts = 8

// dropAttempts makes room for one more attempt. A browser sends the oldest cookies first.
func (h *Handler) dropAttempts(w http.ResponseWriter, r *http.Request) {
	started := slices.DeleteFunc(r.Cookies(), func(c *http.Cookie) bool { return !strings.HasPrefix(c.Name, h.cookieName(attemptPrefix)) })
	for _, old := range started[:max(0, len(started)-maxAttempts+1)] {
		h.setCookie(w, strings.TrimPrefix(old.Name, h.cookieName("")), "", -time.Second)
	}
}

// Callback ends a sign-in: the provider has sent the browser back with a code. A person who is signed in already
// arrives too, without one. Errors: ErrAttempt, ErrToken, ErrClaims, ErrProvider, and Redis's.
func (h *Handler) Callback(w http.ResponseWriter, r *http.Request) error {
	a, p, err := h.complete(r)
	if errors.Is(err, ErrAttempt) && h.isSignedIn(r) { // by another tab, or the page was loaded again
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return nil
	}
	if err != nil {
		result := resultRefused
		if errors.Is(err, ErrProvider) {
			result = resultUnavailable
		}
		h.signIns.WithLabelValues(result).Inc()
		h.log.Warn("sign-in failed", "error", err)
		return err
	}
	// The browser gets a new cookie whatever it had before: a cookie that somebody has planted never becomes a login.
	before := h.loginCookie(r)
	if old, err := h.logins.find(r.Context(), before); err == nil {
		if err := h.logins.end(r.Context(), old, before); err != nil {
			return err
		}
	}
	cookie, err := h.logins.begin(r.Context(), p)
	if err != nil {
		return err
	}
	h.setCookie(w, a.cookie(), "", -time.Second)
	h.setCookie(w, loginCookie, string(cookie), h.logins.lifetime)
	h.signIns.WithLabelValues(resultDone).Inc()
	h.log.Info("signed in", "user", p.User, "account", p.Account)
	http.Redirect(w, r, a.returnTo, http.StatusSeeOther)
	return nil
}

// complete returns the sign-in that the callback is for, and who has signed in.
func (h *Handler) complete(r *http.Request) (attempt, Person, error) {
	query := r.URL.Query()
	a, ok := decodeAttempt(h.cookie(r, attemptCookie(query.Get("state"))), h.now())
	switch {
	case !ok:
		return a, Person{}, ErrAttempt
	case subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(a.state())) != 1:
		return a, Person{}, ErrAttempt
	case query.Get("error") != "" || query.Get("code") == "":
		return a, Person{}, ErrToken
	}
	p, err := h.provider.exchange(r.Context(), a, query.Get("code"))
	return a, p, err
}

// ErrAttempt means that this browser has not started the sign-in, or too long ago.
var ErrAttempt = errors.New("the sign-in is too old, or another browser or tab began it")

// SignOut signs out of this browser. Errors are those of Redis.
func (h *Handler) SignOut(w http.ResponseWriter, r *http.Request, p Person) error {
	return h.signOut(w, r, p, h.logins.end)
}

// SignOutEverywhere signs out of every browser. Errors are those of Redis.
func (h *Handler) SignOutEverywhere(w http.ResponseWriter, r *http.Request, p Person) error {
	return h.signOut(w, r, p, h.logins.endAll)
}

func (h *Handler) signOut(w http.ResponseWriter, r *http.Request, p Person, end func(context.Context, Person, cookieValue) error) error {
	if err := end(r.Context(), p, h.loginCookie(r)); err != nil {
		return err
	}
	h.setCookie(w, loginCookie, "", -time.Second)
	h.log.Info("signed out", "user", p.User)
	http.Redirect(w, r, SignedOutPath, http.StatusSeeOther)
	return nil
}
