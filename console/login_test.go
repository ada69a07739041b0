package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// Names of cookies. Another name would end every login.
const (
	loginCookie   = "console-login"
	attemptCookie = "console-sign-in"
)

func TestSignIn(t *testing.T) {
	f := newFixture(t)
	browser := oidctest.NewBrowser(t)
	page := identities.SignIn(t, browser, f.URL+"/?q=caf%C3%A9", alice)
	if page.Status != http.StatusOK || page.URL.String() != f.URL+"/?q=caf%C3%A9" {
		t.Fatalf("signing in leads to %s with %d", page.URL, page.Status)
	}
	for _, want := range []string{"Alice Ames", "oidc:alice"} {
		if !strings.Contains(page.Text, want) {
			t.Errorf("the page does not say %q:\n%s", want, page.Text)
		}
	}
}

// The password of another person, then the right one: the form of the provider stays usable.
func TestWrongPassword(t *testing.T) {
	f := newFixture(t)
	browser := oidctest.NewBrowser(t)
	page := identities.SignIn(t, browser, f.URL+"/", oidctest.User{Username: "alice", Password: bob.Password})
	if !strings.HasPrefix(page.URL.String(), identities.Issuer) || !strings.Contains(page.Text, "Wrong") {
		t.Fatalf("a wrong password leads to %s", page.URL)
	}
}

func TestCookies(t *testing.T) {
	for _, test := range []struct{ origin, prefix, flags string }{
		{"https://console.example", "__Host-", "; HttpOnly; Secure; SameSite=Lax"},
		{"http://127.0.0.1:8083", "", "; HttpOnly; SameSite=Lax"},
	} {
		f := newFixture(t, func(o *Options) { o.ExternalURL = test.origin })
		answer := httptest.NewRecorder()
		f.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, test.origin+"/sign-in", nil))
		cookie := answer.Header().Get("Set-Cookie")
		if !strings.HasPrefix(cookie, test.prefix+attemptCookie+"=") || !strings.HasSuffix(cookie, test.flags) || !strings.Contains(cookie, "; Path=/;") || strings.Contains(cookie, "Domain") {
			t.Errorf("%s: %d, Set-Cookie: %s", test.origin, answer.Code, cookie)
		}
	}
}

// begin starts a sign-in and returns where the provider would send the browser, without following.
func begin(t *testing.T, f *fixture, user oidctest.User) (oidctest.Browser, *url.URL) {
	t.Helper()
	browser := oidctest.NewBrowser(t)
	var callback *url.URL
	browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == login.CallbackPath {
			callback = r.URL
			return http.ErrUseLastResponse
		}
		return nil
	}
	identities.SignIn(t, browser, f.URL+"/", user)
	browser.CheckRedirect = nil
	if callback == nil || callback.Query().Get("code") == "" {
		t.Fatalf("the provider sends no code: %v", callback)
	}
	return browser, callback
}

func cookieOf(t *testing.T, f *fixture, b oidctest.Browser, name string) *http.Cookie {
	t.Helper()
	for _, cookie := range b.Jar.Cookies(parse(t, f.URL)) {
		if cookie.Name == name {
			return cookie
		}
	}
	return &http.Cookie{}
}

func parse(t *testing.T, address string) *url.URL {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestRefusedCallbacks(t *testing.T) {
	f := newFixture(t)
	refused := func(name string, browser oidctest.Browser, callback *url.URL) {
		t.Helper()
		page := browser.Get(t, callback.String())
		if page.Status != http.StatusBadRequest || !strings.Contains(page.Text, `href="/sign-in"`) {
			t.Errorf("%s: %d: %s", name, page.Status, page.Text)
		}
		if cookieOf(t, f, browser, loginCookie).Value != "" {
			t.Errorf("%s: signed in", name)
		}
	}
	with := func(callback *url.URL, name, value string) *url.URL {
		changed, query := *callback, callback.Query()
		query.Set(name, value)
		changed.RawQuery = query.Encode()
		return &changed
	}

	browser, callback := begin(t, f, alice)
	refused("forged state", browser, with(callback, "state", "forged"))
	refused("no state", browser, with(callback, "state", ""))
	refused("forged code", browser, with(callback, "code", "forged"))
	refused("no code", browser, with(callback, "code", ""))
	refused("an error of the provider", browser, with(callback, "error", "access_denied"))
	refused("another browser", oidctest.NewBrowser(t), callback)

	victim, ofVictim := begin(t, f, alice)
	_, attackers := begin(t, f, mallory)
	refused("the attacker's code and state", victim, attackers)
	refused("the attacker's code with the victim's state", victim, with(attackers, "state", ofVictim.Query().Get("state")))

	browser, callback = begin(t, f, alice)
	f.advance(10 * time.Minute)
	refused("expired state and nonce", browser, callback)
}

// Whoever finds the address of a callback, in a log or in a history, gets nothing by it.
func TestReplayedCode(t *testing.T) {
	f := newFixture(t)
	browser, callback := begin(t, f, alice)
	kept := cookieOf(t, f, browser, attemptCookie)
	if page := browser.Get(t, callback.String()); page.Status != http.StatusOK {
		t.Fatalf("the first use: %d", page.Status)
	}
	if cookieOf(t, f, browser, attemptCookie).Value != "" {
		t.Error("the sign-in is still in the browser")
	}
	thief := oidctest.NewBrowser(t)
	thief.Jar.SetCookies(parse(t, f.URL), []*http.Cookie{{Name: kept.Name, Value: kept.Value, Path: "/"}})
	if page := thief.Get(t, callback.String()); page.Status != http.StatusBadRequest {
		t.Errorf("the second use: %d", page.Status)
	}
}

// A cookie that somebody planted before the sign-in is not signed in by it, and the login that it may have been ends.
func TestSessionFixation(t *testing.T) {
	f := newFixture(t)
	planted := cookieOf(t, f, f.signedIn(mallory), loginCookie)
	browser := oidctest.NewBrowser(t)
	browser.Jar.SetCookies(parse(t, f.URL), []*http.Cookie{{Name: planted.Name, Value: planted.Value, Path: "/"}})
	page := identities.SignIn(t, browser, f.URL+"/sign-in", alice)
	if now := cookieOf(t, f, browser, loginCookie); now.Value == planted.Value || !strings.Contains(page.Text, "oidc:alice") {
		t.Errorf("the planted cookie stays, or nobody is signed in: %s", page.Text)
	}
	attacker := oidctest.NewBrowser(t)
	attacker.Jar.SetCookies(parse(t, f.URL), []*http.Cookie{{Name: planted.Name, Value: planted.Value, Path: "/"}})
	if page := attacker.Get(t, f.URL+"/"); !strings.HasPrefix(page.URL.String(), identities.Issuer) {
		t.Errorf("the planted cookie leads to %s", page.URL)
	}
}

func TestSignOut(t *testing.T) {
	f := newFixture(t)
	here, there, other := f.signedIn(alice), f.signedIn(alice), f.signedIn(bob)
	signedIn := func(b oidctest.Browser) bool {
		return b.Get(t, f.URL+"/").URL.String() == f.URL+"/"
	}
	stolen := *cookieOf(t, f, here, loginCookie)
	if page := here.Post(t, f.URL+"/sign-out", nil); page.URL.Path != "/signed-out" {
		t.Fatalf("signing out leads to %s", page.URL)
	}
	here.Jar.SetCookies(parse(t, f.URL), []*http.Cookie{{Name: stolen.Name, Value: stolen.Value, Path: "/"}})
	if signedIn(here) {
		t.Error("the cookie of a login that was signed out works")
	}
	if !signedIn(there) {
		t.Error("signing out of one browser ends the login in another")
	}
	third := f.signedIn(alice)
	there.Post(t, f.URL+"/sign-out-everywhere", nil)
	if signedIn(third) || signedIn(there) {
		t.Error("after signing out everywhere a browser is signed in")
	}
	if !signedIn(other) {
		t.Error("signing out everywhere signs others out")
	}
}

// A form is not lost when the login has ended meanwhile.
func TestAFormAfterTheLoginHasEnded(t *testing.T) {
	f := newFixture(t)
	page := oidctest.NewBrowser(t).Post(t, f.URL+"/merchants/shops/acme/allowlist", url.Values{"allowlist": {"203.0.113.7\n\"><b>"}})
	if page.Status != http.StatusUnauthorized || !strings.Contains(page.Text, `name="allowlist" value="203.0.113.7`) || strings.Contains(page.Text, "<b>") {
		t.Errorf("%d: %s", page.Status, page.Text)
	}
}

func TestRedisAway(t *testing.T) {
	f := newFixture(t)
	browser := f.signedIn(alice)
	f.redis.Stop()
	page := browser.Get(t, f.URL+"/")
	if page.Status != http.StatusServiceUnavailable || !strings.Contains(page.Text, "Temporarily unavailable") {
		t.Errorf("without Redis: %d: %s", page.Status, page.Text)
	}
}
