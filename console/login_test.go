package console

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// What the names of cookies begin with; a sign-in has one of its own. Another name would end every login.
const (
	loginCookie   = "console-login"
	attemptCookie = "console-sign-in-"
)

func TestSignIn(t *testing.T) {
	t.Parallel()
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
func TestSignIn_WrongPassword(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	browser := oidctest.NewBrowser(t)
	page := identities.SignIn(t, browser, f.URL+"/", oidctest.User{Username: "alice", Password: bob.Password})
	if !strings.HasPrefix(page.URL.String(), identities.Issuer) || !strings.Contains(page.Text, "Wrong") {
		t.Fatalf("a wrong password leads to %s", page.URL)
	}
}

func TestSignIn_Cookies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ origin, prefix, flags string }{
		{"https://console.example", "__Host-", "; HttpOnly; Secure; SameSite=Lax"},
		{"http://127.0.0.1:8083", "", "; HttpOnly; SameSite=Lax"},
	} {
		f := newFixture(t, func(o *Options) { o.ExternalURL = test.origin })
		answer := httptest.NewRecorder()
		f.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, test.origin+"/sign-in", nil))
		cookie := answer.Header().Get("Set-Cookie")
		if !strings.HasPrefix(cookie, test.prefix+attemptCookie) || !strings.HasSuffix(cookie, test.flags) || !strings.Contains(cookie, "; Path=/;") || strings.Contains(cookie, "Domain") {
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

// findCookie returns the first cookie whose name begins so.
func findCookie(t *testing.T, f *fixture, b oidctest.Browser, name string) *http.Cookie {
	t.Helper()
	for _, cookie := range b.Jar.Cookies(parse(t, f.URL)) {
		if strings.HasPrefix(cookie.Name, name) {
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

// A browser that is opened again sends all its tabs to the provider, and each arrives at its page, whichever comes first.
func TestSignIn_ManyTabs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	browser := oidctest.NewBrowser(t)
	var callbacks []*url.URL
	follow := browser.CheckRedirect
	browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == login.CallbackPath {
			callbacks = append(callbacks, r.URL)
			return http.ErrUseLastResponse
		}
		return nil
	}
	const tabs = 10 // two more than the sign-ins whose cookies a browser keeps
	for n := range tabs {
		identities.SignIn(t, browser, fmt.Sprintf("%s/sign-in?returnTo=/?tab=%d", f.URL, n), bob)
	}
	browser.CheckRedirect = follow
	if len(callbacks) != tabs {
		t.Fatalf("%d callbacks", len(callbacks))
	}
	for n, callback := range slices.Backward(callbacks) {
		want := fmt.Sprintf("%s/?tab=%d", f.URL, n)
		if n < 2 { // their cookies had to make room
			want = f.URL + "/"
		}
		if page := browser.Get(t, callback.String()); page.Status != http.StatusOK || page.URL.String() != want {
			t.Errorf("tab %d arrives at %s with %d, want %s", n, page.URL, page.Status, want)
		}
	}
	if page := browser.Get(t, callbacks[5].String()); page.Status != http.StatusOK || page.URL.String() != f.URL+"/" {
		t.Errorf("loaded again, it is at %s with %d", page.URL, page.Status)
	}
	if left := findCookie(t, f, browser, attemptCookie); left.Value != "" {
		t.Errorf("the browser still has %s", left.Name)
	}
}

func TestCallback_Refused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	refused := func(name string, browser oidctest.Browser, callback *url.URL) {
		t.Helper()
		page := browser.Get(t, callback.String())
		if page.Status != http.StatusBadRequest || !strings.Contains(page.Text, `href="/sign-in"`) {
			t.Errorf("%s: %d: %s", name, page.Status, page.Text)
		}
		if findCookie(t, f, browser, loginCookie).Value != "" {
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

// Somebody who finds the address of a callback, in a log or in a history, gets nothing by it.
func TestCallback_ReplayedCode(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	browser, callback := begin(t, f, alice)
	kept := findCookie(t, f, browser, attemptCookie)
	if page := browser.Get(t, callback.String()); page.Status != http.StatusOK {
		t.Fatalf("the first use: %d", page.Status)
	}
	if findCookie(t, f, browser, attemptCookie).Value != "" {
		t.Error("the sign-in is still in the browser")
	}
	thief := oidctest.NewBrowser(t)
	thief.Jar.SetCookies(parse(t, f.URL), []*http.Cookie{{Name: kept.Name, Value: kept.Value, Path: "/"}})
	if page := thief.Get(t, callback.String()); page.Status != http.StatusBadRequest {
		t.Errorf("the second use: %d", page.Status)
	}
}

// A cookie that somebody planted before the sign-in is not signed in by it, and the login that it may have been ends.
func TestSignIn_SessionFixation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	planted := findCookie(t, f, f.signedIn(mallory), loginCookie)
	browser := oidctest.NewBrowser(t)
	browser.Jar.SetCookies(parse(t, f.URL), []*http.Cookie{{Name: planted.Name, Value: planted.Value, Path: "/"}})
	page := identities.SignIn(t, browser, f.URL+"/sign-in", bob)
	if now := findCookie(t, f, browser, loginCookie); now.Value == planted.Value || !strings.Contains(page.Text, "oidc:bob") {
		t.Errorf("the planted cookie stays, or nobody is signed in: %s", page.Text)
	}
	attacker := oidctest.NewBrowser(t)
	attacker.Jar.SetCookies(parse(t, f.URL), []*http.Cookie{{Name: planted.Name, Value: planted.Value, Path: "/"}})
	if page := attacker.Get(t, f.URL+"/"); !strings.HasPrefix(page.URL.String(), identities.Issuer) {
		t.Errorf("the planted cookie leads to %s", page.URL)
	}
}

func TestSignOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	here, there, other := f.signedIn(bob), f.signedIn(bob), f.signedIn(mallory)
	signedIn := func(b oidctest.Browser) bool {
		return b.Get(t, f.URL+"/").URL.String() == f.URL+"/"
	}
	stolen := *findCookie(t, f, here, loginCookie)
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
	third := f.signedIn(bob)
	there.Post(t, f.URL+"/sign-out-everywhere", nil)
	if signedIn(third) || signedIn(there) {
		t.Error("after signing out everywhere a browser is signed in")
	}
	if !signedIn(other) {
		t.Error("signing out everywhere signs others out")
	}
}

// A form is not lost when the login has ended meanwhile.
func TestSignedOut_FormKeepsItsText(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	page := oidctest.NewBrowser(t).Post(t, f.URL+"/merchants/shops/acme/allowlist", url.Values{"allowlist": {"203.0.113.7\n\"><b>"}})
	if page.Status != http.StatusUnauthorized || !strings.Contains(page.Text, `name="allowlist" value="203.0.113.7`) || strings.Contains(page.Text, "<b>") {
		t.Errorf("%d: %s", page.Status, page.Text)
	}
}

func TestSignIn_RedisUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	browser := f.signedIn(alice)
	f.redis.Stop()
	page := browser.Get(t, f.URL+"/")
	if page.Status != http.StatusServiceUnavailable || !strings.Contains(page.Text, "Temporarily unavailable") {
		t.Errorf("without Redis: %d: %s", page.Status, page.Text)
	}
}

// liar is an OpenID provider whose ID tokens are what a test says.
type liar struct {
	*httptest.Server

	key   *rsa.PrivateKey
	token string
	slow  func(*http.Request) // returns when a code may be answered; nil: at once
}

func startLiar(t *testing.T) *liar {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{key: key}
	mux := http.NewServeMux()
	respond := func(path string, body func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if path == "/token" && l.slow != nil {
				l.slow(r)
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body())
		})
	}
	respond("/.well-known/openid-configuration", func() any {
		return map[string]any{
			"issuer": l.URL, "authorization_endpoint": l.URL + "/authorize", "token_endpoint": l.URL + "/token", "jwks_uri": l.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		}
	})
	respond("/keys", func() any {
		return map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": encode(key.N.Bytes()), "e": "AQAB",
		}}}
	})
	respond("/token", func() any {
		return map[string]any{"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": l.token}
	})
	l.Server = httptest.NewServer(mux)
	t.Cleanup(l.Close)
	return l
}

// begin starts a sign-in, and returns with what the provider is asked.
func (l *liar) begin(t *testing.T, f *fixture) (oidctest.Browser, url.Values) {
	t.Helper()
	browser := oidctest.NewBrowser(t)
	browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), l.URL) {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return browser, parse(t, browser.Get(t, f.URL+"/sign-in").Header.Get("Location")).Query()
}

// claims returns the claims of Alice for the sign-in that begin has started.
func (l *liar) claims(query url.Values) map[string]any {
	return map[string]any{
		"iss": l.URL, "aud": oidctest.ClientID, "sub": "alice", "nonce": query.Get("nonce"),
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
	}
}

func encode(content []byte) string { return base64.RawURLEncoding.EncodeToString(content) }

// sign makes a token of claims. A test may change the algorithm and the signature.
func (l *liar) sign(t *testing.T, algorithm string, claims map[string]any, sign func(digest []byte, text string) []byte) string {
	t.Helper()
	header := fmt.Sprintf(`{"alg":%q,"kid":"1"}`, algorithm)
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	text := encode([]byte(header)) + "." + encode(body)
	digest := sha256.Sum256([]byte(text))
	return text + "." + encode(sign(digest[:], text))
}

func signedWith(t *testing.T, key *rsa.PrivateKey) func([]byte, string) []byte {
	t.Helper()
	return func(digest []byte, _ string) []byte {
		signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest)
		if err != nil {
			t.Error(err)
		}
		return signature
	}
}

// An ID token counts if it was made by the provider, for the console, for this sign-in, and not long ago.
func TestCallback_IDToken(t *testing.T) {
	t.Parallel()
	l := startLiar(t)
	f := newFixture(t, func(o *Options) { o.Provider.IssuerURL = l.URL })
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := signedWith(t, l.key)
	for name, test := range map[string]struct {
		algorithm string
		sign      func([]byte, string) []byte
		changed   map[string]any
		want      int
	}{
		"good":              {"RS256", good, nil, http.StatusOK},
		"another nonce":     {"RS256", good, map[string]any{"nonce": "of another sign-in"}, http.StatusBadRequest},
		"no nonce":          {"RS256", good, map[string]any{"nonce": nil}, http.StatusBadRequest},
		"another client":    {"RS256", good, map[string]any{"aud": "another"}, http.StatusBadRequest},
		"another issuer":    {"RS256", good, map[string]any{"iss": "https://evil.example"}, http.StatusBadRequest},
		"expired":           {"RS256", good, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, http.StatusBadRequest},
		"another key":       {"RS256", signedWith(t, other), nil, http.StatusBadRequest},
		"not signed":        {"none", func([]byte, string) []byte { return nil }, nil, http.StatusBadRequest},
		"the client secret": {"HS256", mac, nil, http.StatusBadRequest},
		"reserved name":     {"RS256", good, map[string]any{"sub": "a\u0000b"}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			browser, query := l.begin(t, f)
			claims := l.claims(query)
			maps.Copy(claims, test.changed)
			l.token = l.sign(t, test.algorithm, claims, test.sign)
			page := browser.Get(t, f.URL+login.CallbackPath+"?"+url.Values{"code": {"c"}, "state": {query.Get("state")}}.Encode())
			signedIn := findCookie(t, f, browser, loginCookie).Value != ""
			if page.Status != test.want || signedIn != (test.want == http.StatusOK) {
				t.Errorf("%d, signed in: %v: %s", page.Status, signedIn, page.Text)
			}
		})
	}
}

// Strangers repeat a callback of their own with forged codes, from a hundred addresses of a network, and the provider is slow to refuse
// them. It is asked for some of them only, and somebody else signs in meanwhile.
func TestCallback_Flood(t *testing.T) {
	t.Parallel()
	l := startLiar(t)
	var asked, most, answered atomic.Int64
	l.slow = func(r *http.Request) {
		if r.PostFormValue("code") != "forged" {
			return
		}
		defer asked.Add(-1)
		if now := asked.Add(1); now > most.Load() {
			most.Store(now)
		}
		<-r.Context().Done()
	}
	f := newFixture(t, func(o *Options) {
		o.Provider.IssuerURL, o.TrustedProxies = l.URL, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	browser, query := l.begin(t, f)
	l.token = l.sign(t, "RS256", l.claims(query), signedWith(t, l.key))
	callback := f.callback("c", query.Get("state"), "198.51.100.7")
	strangers, query := l.begin(t, f)
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer func() { stop(); flood.Wait() }()
	const callbacks = 300
	for n := range callbacks {
		forged := f.callback("forged", query.Get("state"), fmt.Sprintf("203.0.113.%d", n%100))
		flood.Go(func() {
			response, err := strangers.Client.Do(forged.WithContext(ctx))
			answered.Add(1)
			if err == nil {
				_ = response.Body.Close()
			}
		})
	}
	await.Until(t, patience, "the provider is asked for as many as may be", func() bool { return asked.Load() >= maxSignIns/2 })
	if page := browser.Do(t, callback); page.Status != http.StatusOK || findCookie(t, f, browser, loginCookie).Value == "" {
		t.Errorf("somebody else gets %d: %s", page.Status, page.Text)
	}
	await.Until(t, patience, "each callback is answered, or the provider is asked", func() bool { return answered.Load()+asked.Load() >= callbacks })
	if got := most.Load(); got > maxSignIns/2 {
		t.Errorf("the provider was asked %d times at once, want at most %d", got, maxSignIns/2)
	}
}

// callback is the request with which the provider sends a browser of this address back.
func (f *fixture) callback(code, state, address string) *http.Request {
	f.t.Helper()
	query := url.Values{"code": {code}, "state": {state}}
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.URL+login.CallbackPath+"?"+query.Encode(), http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	request.Header.Set("X-Forwarded-For", address)
	return request
}

func mac(_ []byte, text string) []byte {
	sum := hmac.New(sha256.New, []byte(oidctest.ClientSecret))
	_, _ = sum.Write([]byte(text))
	return sum.Sum(nil)
}

// Who is signed in stays so while the provider is unavailable.
func TestSignIn_ProviderUnavailable(t *testing.T) {
	t.Parallel()
	provider, stop, err := identities.Another()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stop() }()
	f := newFixture(t, func(o *Options) { o.Provider.IssuerURL = provider.Issuer })
	away := func(browser oidctest.Browser, address string) {
		t.Helper()
		page := browser.Get(t, address)
		if page.Status != http.StatusServiceUnavailable || !strings.Contains(page.Text, "identity provider does not answer") || page.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d: %s", address, page.Status, page.Text)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	away(oidctest.NewBrowser(t), f.URL+"/") // it was never there
	if err := provider.Start(); err != nil {
		t.Fatal(err)
	}
	browser := oidctest.NewBrowser(t)
	if page := provider.SignIn(t, browser, f.URL+"/", bob); page.URL.String() != f.URL+"/" {
		t.Fatalf("once the provider is back, signing in leads to %s", page.URL)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if page := browser.Get(t, f.URL+"/"); page.Status != http.StatusOK {
		t.Errorf("who is signed in gets %d", page.Status)
	}
}

// Groups are not in the cookie, so many of them fit.
func TestSignIn_ManyGroups(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	f.grant(group("shop-staff"), []string{"get"})
	browser := f.signedIn(many)
	if page := browser.Get(t, f.URL+"/"); !strings.Contains(page.Text, "ACME") {
		t.Errorf("a person in 501 groups does not see the merchant that the last one may see: %s", page.Text)
	}
	for _, cookie := range browser.Jar.Cookies(parse(t, f.URL)) {
		if len(cookie.Name)+len(cookie.Value) > 200 {
			t.Errorf("cookie %s has %d bytes", cookie.Name, len(cookie.Value))
		}
	}
}

// The provider of somebody else's making must not make anybody an administrator.
func TestSignIn_ReservedGroups(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.Provider.GroupsPrefix = "" })
	f.merchant("acme")
	page := f.signedIn(mallory).Get(t, f.URL+"/")
	if strings.Contains(page.Text, "ACME") || strings.Contains(page.Text, "<script>") {
		t.Errorf("a claimed group system:masters, or a name with a script, has an effect:\n%s", page.Text)
	}
}

// The sign-in works with a provider that we did not write: discovery, PKCE, which it requires, groups, and sign-out.
func TestSignIn_NodeProvider(t *testing.T) {
	t.Parallel()
	provider := oidctest.StartNode(t, map[string][]string{"carol": {"other", "shop-staff"}})
	f := newFixture(t, func(o *Options) {
		o.Provider.IssuerURL, o.Provider.Scopes = provider.Issuer, []string{"profile", "groups"}
	})
	f.merchant("acme")
	f.grant(group("shop-staff"), []string{"get"})
	carol, dave := oidctest.NewBrowser(t), oidctest.NewBrowser(t)

	page := provider.SignIn(t, carol, f.URL+"/?q=ac", "carol")
	if page.Status != http.StatusOK || page.URL.String() != f.URL+"/?q=ac" {
		t.Fatalf("signing in leads to %s with %d: %s", page.URL, page.Status, page.Text)
	}
	for _, want := range []string{"ACME", "Account carol", "oidc:carol"} {
		if !strings.Contains(page.Text, want) {
			t.Errorf("the page does not say %q: %s", want, page.Text)
		}
	}
	if page := provider.SignIn(t, dave, f.URL+"/", "dave"); strings.Contains(page.Text, "ACME") || !strings.Contains(page.Text, "oidc:dave") {
		t.Errorf("who is in no group gets %d at %s: %s", page.Status, page.URL, page.Text)
	}

	old := findCookie(t, f, carol, loginCookie)
	if page := carol.Post(t, f.URL+"/sign-out", nil); page.URL.Path != "/signed-out" || findCookie(t, f, carol, loginCookie).Value != "" {
		t.Errorf("signing out leads to %s", page.URL)
	}
	thief := oidctest.NewBrowser(t)
	thief.Jar.SetCookies(parse(t, f.URL), []*http.Cookie{{Name: old.Name, Value: old.Value, Path: "/"}})
	if page := thief.Get(t, f.URL+"/"); !strings.HasPrefix(page.URL.String(), provider.Issuer) {
		t.Errorf("after the sign-out the old cookie leads to %s", page.URL)
	}
	if page := provider.SignIn(t, carol, f.URL+"/", "carol"); !strings.Contains(page.Text, "ACME") {
		t.Errorf("signing in again leads to %s with %d", page.URL, page.Status)
	}
}
