package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// attempt is a sign-in that has begun. The browser keeps it in a cookie until the provider sends it back: other sites can neither
// read nor set that cookie, and strangers who begin sign-ins cost Redis nothing. State, nonce and PKCE verifier are derived from
// one secret.
type attempt struct {
	secret   string
	started  time.Time
	returnTo string // path on our origin
}

// attemptLifetime is the time to enter a password, and perhaps a second factor.
const attemptLifetime = 10 * time.Minute

func newAttempt(now time.Time, returnTo string) attempt {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	return attempt{base64.RawURLEncoding.EncodeToString(secret), now, ownPath(returnTo)}
}

func (a attempt) state() string    { return a.derive("state") }
func (a attempt) nonce() string    { return a.derive("nonce") }
func (a attempt) verifier() string { return a.derive("verifier") }

func (a attempt) derive(purpose string) string {
	digest := sha256.Sum256([]byte(purpose + " " + a.secret))
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

func (a attempt) encode() string {
	return strings.Join([]string{a.secret, strconv.FormatInt(a.started.Unix(), 10), base64.RawURLEncoding.EncodeToString([]byte(a.returnTo))}, ".")
}

// decodeAttempt is false for an attempt that is malformed or too old.
func decodeAttempt(text string, now time.Time) (attempt, bool) {
	secret, rest, _ := strings.Cut(text, ".")
	seconds, path, _ := strings.Cut(rest, ".")
	started, err := strconv.ParseInt(seconds, 10, 64)
	returnTo, pathErr := base64.RawURLEncoding.DecodeString(path)
	if len(secret) != base64.RawURLEncoding.EncodedLen(secretBytes) || errors.Join(err, pathErr) != nil {
		return attempt{}, false
	}
	a := attempt{secret, time.Unix(started, 0), ownPath(string(returnTo))}
	return a, now.Sub(a.started) < attemptLifetime
}

// ownPath returns the path and query if they are on our origin and worth returning to, else "/". A browser reads //host and \host
// as another origin.
func ownPath(text string) string {
	const longest = 1024
	parsed, err := url.Parse(text)
	if err != nil || len(text) > longest || parsed.IsAbs() || parsed.Host != "" || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") ||
		strings.Contains(text, `\`) || strings.ContainsFunc(text, unprintable) || parsed.Path == signInPath || parsed.Path == callbackPath {
		return "/"
	}
	return text
}

const (
	signInPath   = "/sign-in"
	callbackPath = "/callback"
)

// Names of cookies. With the prefix a browser takes them from this host only, over TLS only, and for all paths.
func (c *console) cookieName(name string) string {
	if c.secure {
		return "__Host-" + name
	}
	return name
}

const (
	loginCookie   = "console-login"
	attemptCookie = "console-sign-in"
)

// setCookie sets a cookie until the browser is closed, or at most for the lifetime if it has one; a negative one deletes it.
func (c *console) setCookie(w http.ResponseWriter, name, value string, lifetime time.Duration) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure is off on a loopback address only (Options.Validate)
		Name: c.cookieName(name), Value: value, Path: "/", MaxAge: int(lifetime.Seconds()),
		Secure: c.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode, // Lax: the provider's redirect must bring it
	})
}

func (c *console) cookie(r *http.Request, name string) string {
	cookie, err := r.Cookie(c.cookieName(name))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// signIn sends the browser to the provider.
func (c *console) signIn(w http.ResponseWriter, r *http.Request) error {
	a := newAttempt(c.now(), r.URL.Query().Get("returnTo"))
	target, err := c.provider.authorizeURL(r.Context(), a)
	if err != nil {
		c.metrics.signIns.WithLabelValues(signInUnavailable).Inc()
		return err
	}
	c.setCookie(w, attemptCookie, a.encode(), attemptLifetime)
	http.Redirect(w, r, target, http.StatusSeeOther) //nolint:gosec // the provider's own address
	return nil
}

// callback ends a sign-in: the provider has sent the browser back with a code.
func (c *console) callback(w http.ResponseWriter, r *http.Request) error {
	a, p, err := c.complete(r)
	if err != nil {
		result := signInRefused
		if errors.Is(err, errProvider) {
			result = signInUnavailable
		}
		c.metrics.signIns.WithLabelValues(result).Inc()
		c.log.Warn("sign-in failed", "error", err)
		return err
	}
	// The browser gets a new cookie whatever it had before: a cookie that somebody has planted never becomes a login.
	if old, err := c.logins.find(r.Context(), cookieValue(c.cookie(r, loginCookie))); err == nil {
		if err := c.logins.end(r.Context(), old); err != nil {
			return err
		}
	}
	cookie, err := c.logins.begin(r.Context(), p)
	if err != nil {
		return err
	}
	c.setCookie(w, attemptCookie, "", -time.Second)
	c.setCookie(w, loginCookie, string(cookie), c.options.LoginLifetime)
	c.metrics.signIns.WithLabelValues(signInDone).Inc()
	c.log.Info("signed in", "user", p.User)
	http.Redirect(w, r, a.returnTo, http.StatusSeeOther)
	return nil
}

// complete returns the sign-in that the callback is for, and who has signed in. Errors: errToken and those of the provider.
func (c *console) complete(r *http.Request) (attempt, person, error) {
	a, ok := decodeAttempt(c.cookie(r, attemptCookie), c.now())
	query := r.URL.Query()
	switch {
	case !ok:
		return a, person{}, errAttempt
	case subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(a.state())) != 1:
		return a, person{}, errAttempt
	case query.Get("error") != "" || query.Get("code") == "":
		return a, person{}, errToken
	}
	p, err := c.provider.exchange(r.Context(), a, query.Get("code"))
	return a, p, err
}

// errAttempt means that this browser has not begun the sign-in, or too long ago.
var errAttempt = errors.New("the sign-in is too old, or another browser or tab began it")

// current returns the login of the request. Errors are those of logins.find.
func (c *console) current(ctx context.Context, r *http.Request) (login, error) {
	return c.logins.find(ctx, cookieValue(c.cookie(r, loginCookie)))
}

// signOut signs out of this browser, or of all.
func (c *console) signOut(end func(context.Context, login) error) func(http.ResponseWriter, *http.Request, login) error {
	return func(w http.ResponseWriter, r *http.Request, current login) error {
		if err := end(r.Context(), current); err != nil {
			return err
		}
		c.setCookie(w, loginCookie, "", -time.Second)
		c.log.Info("signed out", "user", current.User)
		http.Redirect(w, r, "/signed-out", http.StatusSeeOther)
		return nil
	}
}

func (c *console) signedOut(w http.ResponseWriter, _ *http.Request) error {
	return c.render(w, http.StatusOK, "signed-out", view{Title: "Signed out"})
}
