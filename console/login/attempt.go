package login

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// attempt is a sign-in that was started. The browser keeps it in a cookie until the provider sends it back: other sites can neither
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

// cookie names the attempt's own cookie, so that tabs that sign in at the same time do not take it from each other.
func (a attempt) cookie() string { return attemptCookie(a.state()) }

// attemptCookie names the cookie of the attempt with this state, as a provider has sent it back.
func attemptCookie(state string) string { return attemptPrefix + state[:min(len(state), 16)] }

// attemptPrefix is what the names of the cookies of attempts begin with.
const attemptPrefix = "console-sign-in-"

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
		strings.Contains(text, `\`) || strings.ContainsFunc(text, unprintable) || parsed.Path == SignInPath || parsed.Path == CallbackPath {
		return "/"
	}
	return text
}
