package browser

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/redis/go-redis/v9"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// People of the console. Alice and Carol are developers of every merchant here, Dan is their bookkeeper; Bob has no right.
var (
	alice = oidctest.User{Username: "alice", Password: "a", Name: "Alice Ames", Groups: []string{"developers"}}
	carol = oidctest.User{Username: "carol", Password: "c", Name: "Carol Chen", Groups: []string{"developers"}}
	bob   = oidctest.User{Username: "bob", Password: "b", Name: "Bob"}
	dan   = oidctest.User{Username: "dan", Password: "d", Name: "Dan Dean", Groups: []string{"bookkeepers"}}
)

// consoleShop is a merchant of its own namespace, and what its people do.
type consoleShop struct {
	fixture.Tenant

	merchant *v1alpha1.Merchant
	path     string // of its page
	rail     string // the token of the rail of a payingShop
}

func newConsoleShop(t *testing.T, change ...func(*v1alpha1.Merchant)) consoleShop {
	t.Helper()
	tenant := fixture.NewTenant(t, shared.Client)
	change = append([]func(*v1alpha1.Merchant){func(m *v1alpha1.Merchant) { m.Spec.TimeZone = farFromMidnight() }}, change...)
	s := consoleShop{Tenant: tenant, merchant: tenant.Merchant("acme", change...), path: "/merchants/" + tenant.Namespace + "/acme"}
	for group, role := range map[string]string{"developers": "integrator", "bookkeepers": "bookkeeper"} {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: group},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "merchant-operator-merchant-" + role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "oidc:" + group}},
		}
		if err := shared.Client.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// A time zone where no day ends while a test runs: what was paid stays what was paid "today".
func farFromMidnight() v1alpha1.TimeZone {
	if hour := time.Now().UTC().Hour(); 8 <= hour && hour < 20 {
		return "Europe/Berlin"
	}
	return "Asia/Tokyo"
}

// signIn opens a path of the console and signs in at the provider.
func signIn(t *testing.T, user oidctest.User, settings browsertest.Settings, path string) *browsertest.Page {
	t.Helper()
	page := sharedBrowser.NewPage(t, settings)
	page.AllowErrors("/favicon.ico")
	page.Open(shared.console + path)
	if heading := page.Text("h1"); heading != "Sign in" {
		t.Fatalf("without a login the page shows %q", heading)
	}
	page.Fill("[name=username]", user.Username)
	page.Fill("[name=password]", user.Password)
	page.Click("button")
	if address := browsertest.Eval[string](page, "location.href"); address != shared.console+path {
		t.Fatalf("signing in leads to %s, not to %s", address, path)
	}
	return page
}

// open signs in and opens the page of the merchant when the right to do so is in force.
func (s consoleShop) open(user oidctest.User, settings browsertest.Settings) *browsertest.Page {
	s.T.Helper()
	t := s.T.(*testing.T)
	page := signIn(t, user, settings, "/?all=yes")
	page.AllowErrors("404 (Not Found)")
	s.Eventually(user.Username+" sees the merchant", func() bool { return page.Open(shared.console+s.path) == http.StatusOK })
	return page
}

// shownKey is the key on the page, empty if there is none.
func shownKey(page *browsertest.Page) string { return page.Text("[data-secret]") }

// issue makes a key from the merchant's page and returns to it.
func (s consoleShop) issue(page *browsertest.Page, name string) string {
	s.T.Helper()
	page.Click("a[href$='/new-key']")
	page.Fill("#name", name)
	page.Click("main form button")
	key := shownKey(page)
	if !strings.HasPrefix(key, "mk_live_") {
		s.T.Fatalf("there is no key:\n%s", page.Text("main"))
	}
	s.awaitKey(key)
	page.Click("main a.button")
	s.wantPath(page, s.path)
	return key
}

// sendTestEvent sends a test event from the merchant's page, and returns what the page with its answer says. On a busy machine a page may be
// temporarily unavailable.
func (s consoleShop) sendTestEvent(page *browsertest.Page) string {
	s.T.Helper()
	page.AllowErrors("503 (Service Unavailable)")
	s.Eventually("the answer to a test event is shown", func() bool {
		page.Open(shared.console + s.path)
		page.Click("#webhook form[action$='/webhook/test'] button")
		return page.Text("h1") == "Test event"
	})
	return page.Text("main")
}

// awaitKey returns when each replica knows the new ApiKey, which it hears of by its watch.
func (s consoleShop) awaitKey(key string) {
	s.T.Helper()
	for _, replica := range shared.replicas {
		s.Eventually("the replica knows the ApiKey", func() bool {
			answer, err := fixture.Call(http.DefaultClient, replica.Public, http.MethodGet, "/api/v1/merchant/me", key, "")
			return err == nil && answer.Status == http.StatusOK
		})
	}
}

// rotate opens the form of a key when the operator has reported the last rotation, and chooses an overlap.
func (s consoleShop) rotate(page *browsertest.Page, name, prefix, overlap string) {
	s.T.Helper()
	s.Eventually("the page shows the current key", func() bool {
		page.Open(shared.console + s.path + "/keys/" + name + "/rotate")
		return strings.Contains(page.Text("main"), "begins with "+prefix)
	})
	page.Do("document.querySelector('[name=overlap][value=\"" + overlap + "\"]').focus()")
	page.Press(" ")
}

func keyPrefix(key string) string { return key[:len("mk_live_abcdefghijkl_ABCD")] }

func (s consoleShop) wantPath(page *browsertest.Page, path string) {
	s.T.Helper()
	if got := browsertest.Eval[string](page, "location.pathname"); got != path {
		s.T.Errorf("the browser is at %s, want %s", got, path)
	}
}

// status is the answer of each replica to a charge with the key, which must be the same.
func (s consoleShop) status(key string) int {
	s.T.Helper()
	var statuses []int
	for _, replica := range shared.replicas {
		answer, err := fixture.Call(http.DefaultClient, replica.Public, http.MethodPost, fixture.Sessions, key, `{"amountCents":1250,"orderRef":"1001"}`)
		if err != nil {
			s.T.Fatal(err)
		}
		statuses = append(statuses, answer.Status)
	}
	if len(slices.Compact(slices.Clone(statuses))) != 1 {
		return 0
	}
	return statuses[0]
}

func (s consoleShop) wantStatus(what, key string, want int) {
	s.T.Helper()
	if got := s.status(key); got != want {
		s.T.Errorf("%s: %d, want %d", what, got, want)
	}
}

// wantNowhere fails if the page, its history, its storage or a log holds one of the keys.
func (s consoleShop) wantNowhere(when string, page *browsertest.Page, keys ...string) {
	s.T.Helper()
	seen := strings.Join([]string{
		browsertest.Eval[string](page, "document.documentElement.outerHTML"),
		browsertest.Eval[string](page, "(() => { try { return JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie]) } catch { return '' } })()"),
		strings.Join(page.History(), "\n"), page.Logged(), shared.Logs.String(),
	}, "\n")
	for _, key := range keys {
		if strings.Contains(seen, key) || strings.Contains(seen, key[len(keyPrefix(key)):]) {
			s.T.Errorf("%s: a key is where it must not be", when)
		}
	}
}

// A developer's first day: sign in, find the merchant, issue a key, charge, rotate with an hour's overlap, end the old keys.
func TestConsole_FirstDay(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{})
	page.Open(shared.console + "/?q=" + url.QueryEscape(s.Namespace))
	page.Click("ul.list a")
	s.wantPath(page, s.path+"/payments")
	page.Click("nav.tabs a:last-child")
	s.wantPath(page, s.path)

	first := s.issue(page, "till-1")
	s.wantStatus("the new key", first, http.StatusCreated)
	s.rotate(page, "till-1", keyPrefix(first), "3600")
	page.Click("main form button")
	second := shownKey(page)
	if !strings.Contains(page.Text("main"), "The old key works until") {
		t.Errorf("the page does not say how long the old key works:\n%s", page.Text("main"))
	}
	s.wantStatus("the old key in its overlap", first, http.StatusCreated)
	s.wantStatus("the second key", second, http.StatusCreated)
	page.Click("main a.button")
	s.Eventually("the merchant's page shows the overlap", func() bool {
		page.Reload()
		return strings.Contains(page.Text("#keys"), "The old key ends")
	})

	s.rotate(page, "till-1", keyPrefix(second), "0")
	page.Click("main form button")
	third := shownKey(page)
	s.wantStatus("the first key after the end of its overlap", first, http.StatusUnauthorized)
	s.wantStatus("the second key", second, http.StatusUnauthorized)
	s.wantStatus("the third key", third, http.StatusCreated)
	page.Click("main a.button")
	s.wantNowhere("on the merchant's page", page, first, second, third)
	if activity := page.Text("#activity"); !strings.Contains(activity, "The key was replaced by oidc:alice") {
		t.Errorf("the page does not say who rotated the key: %s", activity)
	}
}

// The form of a new key proposes what a till needs: such a key charges, and can neither see the turnover nor replace itself.
func TestConsole_NewTillKey(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{})
	for name, want := range map[string]struct {
		choice       string
		list, rotate int
	}{
		"till-1": {"", http.StatusForbidden, http.StatusForbidden}, "server": {"all", http.StatusOK, http.StatusOK},
	} {
		page.Open(shared.console + s.path + "/new-key")
		page.Fill("#name", name)
		if want.choice != "" {
			page.Do("document.querySelector('[name=permissions][value=" + want.choice + "]').focus()")
			page.Press(" ")
		}
		page.Click("main form button")
		key := shownKey(page)
		s.awaitKey(key)
		for _, route := range []struct {
			method, path string
			status       int
		}{{http.MethodGet, "/api/v1/events", want.list}, {http.MethodPost, "/api/v1/keys/rotate", want.rotate}} {
			if got, err := fixture.Call(http.DefaultClient, shared.replicas[0].Public, route.method, route.path, key, ""); err != nil || got.Status != route.status {
				t.Errorf("%s: %s %s answers %d, %v; want %d", name, route.method, route.path, got.Status, err, route.status)
			}
		}
	}
}

// The back button, a reload and the history show no key again, and make none.
func TestConsole_KeyShownOnce(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{})
	page.AllowErrors("ERR_CACHE_MISS", "422", "409")
	key := s.issue(page, "till-1")
	page.Back()
	s.wantNowhere("after Back", page, key)
	page.Reload()
	s.wantNowhere("after Back and Reload", page, key)
	page.Back()
	page.Forward()
	s.wantNowhere("after Forward", page, key)

	s.rotate(page, "till-1", keyPrefix(key), "0")
	page.Click("main form button")
	second := shownKey(page)
	page.Reload() // a browser asks first, and sends the form again
	s.wantNowhere("after the form was sent again", page, key, second)
	s.wantStatus("the key after the form was sent again", second, http.StatusCreated)
}

func TestConsole_TwoPeopleRotate(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	pages := []*browsertest.Page{s.open(alice, browsertest.Settings{}), s.open(carol, browsertest.Settings{})}
	key := s.issue(pages[0], "till-1")
	for _, page := range pages {
		page.AllowErrors("409 (Conflict)")
		s.rotate(page, "till-1", keyPrefix(key), "0")
	}
	var both sync.WaitGroup
	for _, page := range pages {
		both.Go(func() { page.Click("main form button") })
	}
	both.Wait()
	var keys, losers int
	for _, page := range pages {
		switch text := page.Text("main"); {
		case shownKey(page) != "":
			keys++
			s.wantStatus("the one new key", shownKey(page), http.StatusCreated)
		case strings.Contains(text, "Rotated meanwhile") && strings.Contains(text, "Nothing was changed now"):
			losers++
		default:
			t.Errorf("a page shows\n%s", text)
		}
	}
	if keys != 1 || losers != 1 {
		t.Errorf("%d keys, and %d were refused; want one of each", keys, losers)
	}
	s.wantStatus("the old key", key, http.StatusUnauthorized)
}

// A person without any right sees nothing.
func TestConsole_NoRights(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	s.open(alice, browsertest.Settings{}) // the merchant is there
	page := signIn(t, bob, browsertest.Settings{}, "/")
	page.AllowErrors("404 (Not Found)")
	if text := page.Text("main"); !strings.Contains(text, "no right to see any merchant") || !strings.Contains(text, "oidc:bob") || strings.Contains(text, "acme") {
		t.Errorf("the list shows\n%s", text)
	}
	for _, path := range []string{"", "/new-key", "/allowlist", "/webhook", "/keys/till-1/rotate", "/dead-letters/resend"} {
		if status := page.Open(shared.console + s.path + path); status != http.StatusNotFound || strings.Contains(page.Text("body"), "Acme") {
			t.Errorf("%s: %d\n%s", path, status, page.Text("body"))
		}
	}
}

// Everything but the copy button and local times works without scripts.
func TestConsole_NoJavaScript(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"} })
	page := s.open(alice, browsertest.Settings{NoJavaScript: true, Width: 320, Height: 640})
	page.AllowErrors("422")
	if text := s.sendTestEvent(page); !strings.Contains(text, "Send another one") || strings.Contains(text, "No test event was sent") {
		t.Errorf("the answer to a test event is\n%s", text)
	}
	page.Click("main a[href$='#webhook']")
	key := s.issue(page, "till-1")
	s.wantStatus("the new key", key, http.StatusCreated)
	s.rotate(page, "till-1", keyPrefix(key), "0")
	page.Click("main form button")
	second := shownKey(page)
	s.wantStatus("the old key", key, http.StatusUnauthorized)
	s.wantStatus("the second key", second, http.StatusCreated)
	page.Click("main a.button")
	if text := page.Text("main"); !strings.Contains(text, "Times are those of "+string(s.merchant.Spec.TimeZone)+".") {
		t.Errorf("times without a zone:\n%s", text)
	}

	page.Do("document.querySelector('#key-till-1 summary').focus()")
	page.Press(kb.Enter)
	page.Click("a[href$='/till-1/disable']")
	page.Fill("#name", "till-2")
	page.Click("main form button")
	if got := browsertest.Eval[string](page, "document.querySelector('#name').value"); got != "till-2" {
		t.Errorf("what was typed has become %q", got)
	}
	page.Fill("#name", "till-1")
	page.Click("main form button")
	s.Eventually("the disabled key is refused", func() bool { return s.status(second) == http.StatusUnauthorized })
	s.Eventually("the page says what that means", func() bool {
		page.Open(shared.console + s.path)
		return strings.Contains(page.Text("#key-till-1"), "This key is switched off. Tills that use it are refused.")
	})
	page.Do("document.querySelector('#key-till-1 summary').focus()")
	page.Press(kb.Enter)
	page.Click("a[href$='/till-1/enable']")
	page.Click("main form button")
	s.wantPath(page, s.path)
	s.Eventually("the enabled key is accepted", func() bool { return s.status(second) == http.StatusCreated })

	page.Do("document.querySelector('.account summary').focus()")
	page.Press(kb.Enter)
	page.Click("form[action='/sign-out'] button")
	if page.Text("h1") != "Signed out" {
		t.Errorf("after signing out:\n%s", page.Text("body"))
	}
}

// A developer shuts out their own address, after a warning, and comes back in.
func TestConsole_AllowlistShutsOutItsAuthor(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{})
	page.AllowErrors("422")
	key := s.issue(page, "till-1")
	save := func(allowlist string) {
		t.Helper()
		page.Click("#allowlist a.button")
		page.Fill("#allowlist", allowlist)
		page.Click("main form button")
	}
	save("203.0.113.0/24, 2001:db8::/48")
	if note := page.Text("main"); !strings.Contains(note, "Your own address 127.0.0.1 would not pass") {
		t.Errorf("there is no warning:\n%s", note)
	}
	s.wantStatus("before the warning is confirmed", key, http.StatusCreated)
	page.Fill("main form #allowlist", "127.0.0.1")
	page.Click("main form button") // it passes now, so there is nothing to confirm
	s.wantPath(page, s.path)
	save("203.0.113.0/24, 2001:db8::/48")
	page.Do("document.querySelector('[name=confirmed]').focus()")
	page.Press(" ")
	page.Click("main form button")
	s.wantPath(page, s.path)
	s.Eventually("the address is shut out", func() bool { return s.status(key) == http.StatusUnauthorized })
	if text := page.Text("#allowlist"); !strings.Contains(text, "Your own address is 127.0.0.1. It does not pass.") {
		t.Errorf("the page shows\n%s", text)
	}
	for address, want := range map[string]string{"203.0.113.9": "Requests from this address pass.", "198.51.100.7": "Requests from this address are refused.", "shop": "This is not an IP address."} {
		page.Do("document.querySelector('#allowlist details').open = true")
		page.Fill("#address", address)
		page.Click("#allowlist form button")
		if got := page.Text("#address-answer"); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	save("203.0.113.0/24\n127.0.0.1")
	s.Eventually("the address is back", func() bool { return s.status(key) == http.StatusCreated })
}

// A refused form has what was typed, and its error is read with its field.
func TestConsole_RefusedForms(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{})
	page.AllowErrors("422")
	s.issue(page, "till-1")
	for _, test := range []struct{ path, field, text string }{
		{"/new-key", "#name", "(?)"},
		{"/new-key", "#name", "till-1"},
		{"/keys/till-1/disable", "#name", "till-2"},
		{"/keys/till-1/delete", "#name", "Till-1"},
		{"/allowlist", "#allowlist", "203.0.113.7/24"},
		{"/allowlist", "#allowlist", "203.0.113.7\nshop.example"},
		{"/webhook", "#url", "ftp://shop.example/hooks"},
	} {
		page.Open(shared.console + s.path + test.path)
		page.Fill(test.field, test.text)
		if status := page.Click("main form button"); status != http.StatusUnprocessableEntity {
			t.Errorf("%s with %q: %d\n%s", test.path, test.text, status, page.Text("main"))
			continue
		}
		field := "document.querySelector('main form " + test.field + "')"
		if got := browsertest.Eval[string](page, field+".value"); got != test.text {
			t.Errorf("%s: %q has become %q", test.path, test.text, got)
		}
		description := browsertest.Eval[string](page, field+".getAttribute('aria-describedby').split(' ').map(id => document.getElementById(id).innerText).join('\\n')")
		if problem := page.Text("main form [role=alert]"); problem == "" || !strings.Contains(description, problem) || !browsertest.Eval[bool](page, field+".ariaInvalid === 'true'") {
			t.Errorf("%s: the field is described by %q, and the error is %q", test.path, description, problem)
		}
		for _, violation := range page.Violations() {
			t.Errorf("%s: %s", test.path, violation)
		}
	}
}

// Neither the back button nor a reload shows it again.
func TestConsole_SigningSecretShownOnce(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{Width: 320, Height: 640})
	page.AllowErrors("ERR_CACHE_MISS", "422")
	page.Click("#webhook a[href$='/webhook']")
	page.Fill("#url", "https://shop.example/hooks")
	page.Click("main form button")
	first := shownKey(page)
	if !strings.HasPrefix(first, "whsec_") {
		t.Fatalf("there is no secret:\n%s", page.Text("main"))
	}
	checkConsolePage(t, page, "the page of a new signing secret")
	page.Click("main a.button")
	s.wantPath(page, s.path)
	page.Click("#webhook a[href$='/rotate-secret']")
	page.Click("main form button")
	second := shownKey(page)
	if !strings.HasPrefix(second, "whsec_") || second == first {
		t.Errorf("there is no other secret:\n%s", page.Text("main"))
	}
	page.Reload() // a browser asks first, and sends the form again
	s.wantNowhere("after the form was sent again", page, first, second)
	page.Open(shared.console + s.path)
	page.Back()
	s.wantNowhere("after Back", page, first, second)
	if s.Delivered("acme-webhook", "secret") != second {
		t.Error("the form sent again has made another secret")
	}
}

// A receiver answers 410, so its endpoint is disabled and the event a dead letter; later it is repaired.
func TestConsole_ResendDeadLetter(t *testing.T) {
	t.Parallel()
	var repaired atomic.Bool
	box, err := inbox.New(inbox.Options{AcceptUnverified: true, Log: t.Output(), Status: func(*http.Request) int {
		if repaired.Load() {
			return http.StatusNoContent
		}
		return http.StatusGone
	}})
	if err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(box)
	t.Cleanup(receiver.Close)
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: receiver.URL} })
	page := s.open(alice, browsertest.Settings{})
	key := s.issue(page, "till-1") // whose event, key.rotated, is refused first
	awaitText := func(what, want string) {
		t.Helper()
		s.Eventually(what, func() bool {
			page.Open(shared.console + s.path)
			return strings.Contains(page.Text("#webhook"), want)
		})
	}
	awaitText("the webhook is disabled", "Your server answered 410 Gone, so we stopped sending today at")
	session := call(t, shared.replicas[0].Public, http.MethodPost, fixture.Sessions, key, `{"amountCents":1250,"orderRef":"1001"}`)
	call(t, shared.replicas[0].Public, http.MethodPost, fixture.Sessions+"/"+session.Text("sessionId")+"/cancel", key, "")
	awaitText("the event is a dead letter", "A payment was cancelled · order 1001")

	repaired.Store(true)
	if text := s.sendTestEvent(page); !strings.Contains(text, "Your server answered 204: it accepts events.") { // although the webhook is disabled
		t.Errorf("the answer to the test event is\n%s", text)
	}
	for _, violation := range page.Violations() {
		t.Error(violation)
	}
	page.Click("main a[href$='#webhook']")
	if text := page.Text("#attention"); !strings.Contains(text, "so we stopped sending today at") || !strings.Contains(text, "2 events were not delivered") {
		t.Errorf("what needs attention is\n%s", text)
	}
	if text := page.Text("#attempts"); !strings.Contains(text, "A key was replaced") || !strings.Contains(text, "Your server answered 410 Gone") {
		t.Errorf("the failed attempts are\n%s", text)
	}
	page.Click("#webhook ul.letters li a") // the newest is the first
	if text := page.Text("main"); !strings.Contains(text, "session.cancelled") || !strings.Contains(text, "Your server answered 410 Gone, so we stopped sending today at") {
		t.Errorf("the form shows\n%s", text)
	}
	if label := page.Text("main form button"); label != "Resume and send again" {
		t.Errorf("the form offers %q", label)
	}
	page.Click("main form button")
	s.wantPath(page, s.path)
	arrived := func(kind string, attempts int) func() bool {
		return func() bool {
			for _, event := range box.Events() {
				if event.Type == kind && event.Attempts == attempts {
					return true
				}
			}
			return false
		}
	}
	s.Eventually("the event arrives", arrived("session.cancelled", 1))
	awaitText("the webhook works", "Your server accepts events.")
	page.Click("#webhook ul.letters li a")
	page.Click("main form button")
	s.Eventually("the other event arrives too", arrived("key.rotated", 2))
	awaitText("nothing waits", "Waiting to be sent\n0")
	if text := page.Text("#webhook"); strings.Contains(text, "Events not delivered") {
		t.Errorf("events that were not delivered are left:\n%s", text)
	}
}

// Every page of the console, on the narrowest phone, in light, dark and forced colours.
func TestConsole_Accessible(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) {
		m.Spec.DisplayName = "The Long Name of a Merchant-in-Donaudampfschifffahrtsgesellschaft"
		m.Spec.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.1", "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff/128"}
		m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/" + strings.Repeat("hooks", 20)}
	})
	page := s.open(alice, browsertest.Settings{Width: 320, Height: 640})
	s.issue(page, "a-till-with-a-rather-long-name-at-the-entrance")
	key := "/keys/a-till-with-a-rather-long-name-at-the-entrance"
	for path, status := range map[string]int{
		"/": http.StatusOK, "/?q=nobody": http.StatusOK, "/signed-out": http.StatusOK, "/nothing": http.StatusNotFound,
		s.path: http.StatusOK, s.path + "?address=127.0.0.2": http.StatusOK, s.path + "/new-key": http.StatusOK,
		s.path + key + "/rotate": http.StatusOK, s.path + key + "/disable": http.StatusOK, s.path + key + "/delete": http.StatusOK,
		s.path + "/allowlist": http.StatusOK, s.path + "/webhook": http.StatusOK, s.path + "/webhook/rotate-secret": http.StatusOK,
	} {
		if got := page.Open(shared.console + path); got != status {
			t.Errorf("%s: %d, want %d", path, got, status)
		}
		checkConsolePage(t, page, path)
	}
	page.Open(shared.console + s.path + key + "/rotate")
	page.Click("main form button")
	if shownKey(page) == "" {
		t.Fatalf("there is no key:\n%s", page.Text("main"))
	}
	checkConsolePage(t, page, "the page of a new key")
	s.sendTestEvent(page)
	checkConsolePage(t, page, "the answer to a test event")
	page.Reload()
	reachEverything(t, page)
}

// tooWide is the text of what is wider than its place, such as a long German word; empty: nothing is. Code scrolls in its box.
const tooWide = `(() => {
	const found = [];
	for (const node of document.querySelectorAll("body *")) {
		const style = getComputedStyle(node);
		if (node.closest("pre, svg, .skip") || style.display === "inline" || style.overflowX !== "visible" || node.clientWidth === 0) continue;
		if (node.scrollWidth > node.clientWidth + 1) found.push(node.tagName + " " + node.className + " (" + node.scrollWidth + " in " + node.clientWidth + "): " + node.textContent.trim().slice(0, 80));
	}
	if (document.documentElement.scrollWidth > innerWidth) found.push("the page is " + document.documentElement.scrollWidth + " pixels wide");
	return found.join("\n");
})()`

// A German shop owner uses the console on a phone and on a desk: long words fit everywhere, and what a script writes is German too.
func TestConsole_German(t *testing.T) {
	t.Parallel()
	s, paid := payingShop(t)
	s.sellBefore()
	page := s.open(dan, browsertest.Settings{Language: "de"})
	payments := s.path + "/payments"
	s.lookAt(page, payments, payments+"/"+paid, payments+"/"+paid+"/refund", payments+"?q=nichts", "/?all=yes", "/nothing")
	page.Open(shared.console + payments + "/" + paid + "/refund")
	page.Fill("#amount", "1,20")
	page.Click("main form button")
	if text := page.Text("main form"); !strings.Contains(text, "1,20\u00a0€ erstatten") || browsertest.Eval[string](page, "document.documentElement.lang") != "de" {
		t.Errorf("the form asks\n%s", text)
	}
	checkConsolePage(t, page, "the form that asks back")

	developer := s.open(alice, browsertest.Settings{Language: "de"})
	s.issue(developer, "kasse-2")
	keys := s.path + "/keys/kasse-2"
	s.lookAt(developer, s.path, s.path+"/new-key", keys+"/rotate", keys+"/disable", keys+"/delete", s.path+"/allowlist", s.path+"/webhook", s.path+"/webhook/test")
	checkConsolePage(t, developer, s.path)
	if buttons := browsertest.Eval[string](developer, "document.querySelector('.copy').textContent"); buttons != "Kopieren" {
		t.Errorf("the button at an example says %q", buttons)
	}
}

// lookAt opens pages on a small and a usual phone and on a desk, where nothing may be wider than its place.
func (s consoleShop) lookAt(page *browsertest.Page, paths ...string) {
	s.T.Helper()
	page.AllowErrors("404 (Not Found)")
	for _, path := range paths {
		for _, width := range []int64{320, 390, 1280} {
			page.SetViewport(width, 844, 1)
			page.Open(shared.console + path)
			page.Do("for (const closed of document.querySelectorAll('main details')) closed.open = true")
			if found := browsertest.Eval[string](page, tooWide); found != "" {
				s.T.Errorf("%s, %d pixels: too wide are\n%s", path, width, found)
			}
		}
	}
	page.SetViewport(320, 640, 1)
	page.Open(shared.console + paths[0])
}

func checkConsolePage(t *testing.T, page *browsertest.Page, name string) {
	t.Helper()
	page.Do("for (const closed of document.querySelectorAll('details')) closed.open = true")
	for colour, media := range colours {
		page.SetMedia("", media)
		for _, violation := range page.Violations() {
			t.Errorf("%s, %s: %s", name, colour, violation)
		}
	}
	if wide := browsertest.Eval[int](page, "document.documentElement.scrollWidth"); wide > 320 {
		t.Errorf("%s: %d pixels wide on a screen of 320", name, wide)
	}
	for _, node := range page.AccessibilityTree() {
		if slices.Contains([]string{"link", "button", "image", "heading", "textbox", "checkbox", "radio"}, node.Role) && node.Name == "" {
			t.Errorf("%s: a %s has no name", name, node.Role)
		}
	}
	if headings := browsertest.Eval[int](page, "document.querySelectorAll('h1').length"); headings != 1 {
		t.Errorf("%s: %d headings of the first level", name, headings)
	}
}

// The keyboard reaches everything that can be used, in the order of the page, and shows where it is.
func TestConsole_Keyboard(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"} })
	page := s.open(alice, browsertest.Settings{})
	s.issue(page, "till-1")
	page.Open(shared.console + s.path)
	page.Do("for (const closed of document.querySelectorAll('main details')) closed.open = true")
	if want := reachEverything(t, page); want < 20 {
		t.Errorf("the page has only %d elements to use", want)
	}
	page.Open(shared.console + s.path)
	page.Press(kb.Tab)
	page.Press(kb.Enter) // skip to the content
	page.Press(kb.Tab)
	if at := browsertest.Eval[string](page, "document.activeElement.innerText"); at != "All merchants" {
		t.Errorf("after the skip link, Tab goes to %q", at)
	}
}

// reachEverything goes through a page with the Tab key, and returns how many elements can be used.
func reachEverything(t *testing.T, page *browsertest.Page) int {
	t.Helper()
	const usable = "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), summary, pre[tabindex]')].filter(e => e.checkVisibility({contentVisibilityAuto: true}))"
	want := browsertest.Eval[int](page, usable+".length")
	for i := range want {
		page.Press(kb.Tab)
		for range 4 { // a field of a date has day, month, year and a button
			if i > 0 && browsertest.Eval[bool](page, "document.activeElement.type === 'date' && "+usable+".indexOf(document.activeElement) < "+strconv.Itoa(i)) {
				page.Press(kb.Tab)
			}
		}
		if at := browsertest.Eval[int](page, usable+".indexOf(document.activeElement)"); at != i {
			t.Fatalf("Tab %d goes to number %d: %s", i, at, browsertest.Eval[string](page, "document.activeElement.outerHTML"))
		}
		if !browsertest.Eval[bool](page, "(s => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2)(getComputedStyle(document.activeElement))") {
			t.Errorf("the focus cannot be seen on %s", browsertest.Eval[string](page, "document.activeElement.outerHTML"))
		}
	}
	return want
}

// Times are those of the shop, and the viewer's own for who asks.
func TestConsole_ShopTimes(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) { m.Spec.TimeZone = "America/Chicago" })
	page := s.open(alice, browsertest.Settings{})
	s.issue(page, "till-1")
	page.SetTimezone("Asia/Kathmandu") // 5:45 ahead
	page.Open(shared.console + s.path)
	page.Do("for (const closed of document.querySelectorAll('details')) closed.open = true")
	type shown struct{ Text, Shop, Title, Own string }
	times := browsertest.Eval[[]shown](page, `[...document.querySelectorAll('time')].map(time => ({Text: time.textContent, Title: time.title,
		Shop: new Intl.DateTimeFormat('en-GB', {timeStyle: 'short', timeZone: 'America/Chicago'}).format(new Date(time.dateTime)),
		Own: new Intl.DateTimeFormat(undefined, {dateStyle: 'medium', timeStyle: 'short', timeZone: 'Asia/Kathmandu'}).format(new Date(time.dateTime))}))`)
	if len(times) == 0 {
		t.Error("the page has no times")
	}
	for _, time := range times {
		if !strings.HasSuffix(time.Text, " at "+time.Shop) || time.Title != time.Own {
			t.Errorf("%+v", time)
		}
	}
	if text := page.Text("main"); !strings.Contains(text, "Times are those of America/Chicago.") {
		t.Errorf("the page does not say whose times:\n%s", text)
	}
}

// charge creates a session and returns its id.
func (s consoleShop) charge(key string, cents int, order string) string {
	s.T.Helper()
	answer, err := fixture.Call(http.DefaultClient, shared.replicas[0].Public, http.MethodPost, fixture.Sessions, key, fmt.Sprintf(`{"amountCents":%d,"orderRef":%q}`, cents, order))
	if err != nil || answer.Status != http.StatusCreated {
		s.T.Fatalf("%d %s: %v", answer.Status, answer.Raw, err)
	}
	return answer.Text("sessionId")
}

// When each payment was made.
const paidAt = "2026-11-23T14:05:00Z"

// shopTime is paidAt in the merchant's time zone.
func shopTime(t *testing.T, s consoleShop) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, paidAt)
	zone, zoneErr := time.LoadLocation(string(s.merchant.Spec.TimeZone))
	if err = errors.Join(err, zoneErr); err != nil {
		t.Fatal(err)
	}
	return at.In(zone)
}

// pay reports a payment at the other replica.
func (s consoleShop) pay(rail, id, ref, outcome string, cents int) {
	s.T.Helper()
	answer, err := fixture.Call(http.DefaultClient, shared.replicas[1].Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", rail,
		fmt.Sprintf(`{"paymentRef":%q,"outcome":%q,"amountCents":%d,"paidAt":%q,"reason":"insufficient funds"}`, ref, outcome, cents, paidAt))
	if err != nil || answer.Status != http.StatusOK {
		s.T.Fatalf("%d %s: %v", answer.Status, answer.Raw, err)
	}
}

// reference is what a payer reads aloud of a receipt.
func (s consoleShop) reference(id string) string {
	s.T.Helper()
	payer := sharedBrowser.NewPage(s.T.(*testing.T), browsertest.Settings{})
	payer.Open(pageURL(id))
	return strings.ToLower(regexp.MustCompile(`[0-9A-Z]{4}-[0-9A-Z]{4}`).FindString(payer.Text("main")))
}

// payingShop has payments of each kind; paid is one with a second payment to be refunded.
func payingShop(t *testing.T) (s consoleShop, paid string) {
	t.Helper()
	s = newConsoleShop(t, func(m *v1alpha1.Merchant) {
		m.Spec.DisplayName, m.Spec.Currency = "Acme Coffee", "EUR"
	})
	_, key := s.ApiKey("till-1", s.merchant.Name)
	s.awaitKey(key)
	s.rail = s.RailToken()
	s.charge(key, 1900, "still waiting")
	s.pay(s.rail, s.charge(key, 2350, "1003"), "card-1003", "FAILED", 2350)
	paid = s.charge(key, 1250, "1002")
	s.pay(s.rail, paid, "card-1002", "COMPLETED", 1250)
	s.pay(s.rail, paid, "card-1002-again", "COMPLETED", 1250)
	s.pay(s.rail, s.charge(key, 480, "1001"), "card-1001", "COMPLETED", 480)
	return s, paid
}

// Was I paid? From the merchant's page to one payment and its file, with the keyboard, and without a script of ours.
func TestConsole_Payments(t *testing.T) {
	t.Parallel()
	s, paid := payingShop(t)
	for name, settings := range map[string]browsertest.Settings{"with JavaScript": {}, "without": {NoJavaScript: true, Width: 320, Height: 640}} {
		page := s.open(alice, settings)
		page.Click("a[href$='/payments']")
		for _, want := range []string{"Paid\n€17.30\n2 payments", "Arrived, not taken\n€12.50", "Given back\n€0.00", "Net\n€29.80"} {
			if text := page.Text("#today"); !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		if bars := browsertest.Eval[int](page, "document.querySelectorAll('.chart rect').length"); bars != 2 {
			t.Errorf("%s: the pictures have %d bars, want one of the day and one of the hour", name, bars)
		}
		if text := page.Text(".payments"); !strings.Contains(text, "order 1001") || strings.Contains(text, "still waiting") {
			t.Errorf("%s: the list is\n%s", name, text)
		}
		if text := page.Text(".payments tr:has(.off)"); !strings.Contains(text, "To be refunded") {
			t.Errorf("%s: money to be refunded is\n%s", name, text)
		}
		page.Fill("#q", "still waiting")
		page.Press(kb.Enter)
		page.Until("the order is found", "document.querySelector('.payments')?.innerText.includes('Waiting')")
		for _, wanted := range []string{"1002", "card-1002", s.reference(paid)} {
			page.Fill("#q", wanted)
			page.Click("form[role=search] button")
			if text := page.Text(".payments"); !strings.Contains(text, "order 1002") || strings.Contains(text, "order 1001") {
				t.Errorf("%s: %q finds\n%s", name, wanted, text)
			}
		}
		page.Fill("#q", "4,80 €")
		page.Click("form[role=search] button")
		if text := page.Text(".payments"); !strings.Contains(text, "order 1001") || strings.Contains(text, "order 1002") {
			t.Errorf("%s: the amount finds\n%s", name, text)
		}
		page.Fill("#q", "1002")
		page.Click("form[role=search] button")
		page.Click(".payments a")
		s.wantPath(page, s.path+"/payments/"+paid)
		text := page.Text("main")
		for _, want := range []string{"€12.50", "Paid", "till-1", "card-1002", "To be refunded", "The order was paid already.", "card-1002-again", shopTime(t, s).Format(time.TimeOnly)} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the payment does not say %q:\n%s", name, want, text)
			}
		}
		page.Open(shared.console + s.path + "/payments")
		page.Click("nav.switch a:last-child")
		if text := page.Text("main"); !strings.Contains(text, "No payments yet") || !strings.Contains(text, "Test payments move no money") {
			t.Errorf("%s: test payments are\n%s", name, text)
		}
	}
}

// Every state of the pages, on the narrowest phone, in light, dark and forced colours; times are the shop's wherever the viewer is.
func TestConsole_PaymentsAccessible(t *testing.T) {
	t.Parallel()
	s, paid := payingShop(t)
	page := s.open(alice, browsertest.Settings{Width: 320, Height: 640})
	page.SetTimezone("Asia/Kathmandu")
	list := s.path + "/payments"
	for path, status := range map[string]int{
		list: http.StatusOK, list + "?mode=test": http.StatusOK, list + "?q=1002": http.StatusOK, list + "?q=nothing": http.StatusOK,
		list + "?before=1-1": http.StatusOK, list + "/" + paid: http.StatusOK, list + "/none": http.StatusNotFound, list + ".xlsx?day=no": http.StatusBadRequest, list + ".csv?day=no": http.StatusBadRequest,
	} {
		page.AllowErrors("400 (Bad Request)")
		if got := page.Open(shared.console + path); got != status {
			t.Errorf("%s: %d, want %d", path, got, status)
		}
		checkConsolePage(t, page, path)
	}
	page.Open(shared.console + list + "/" + paid)
	if text := page.Text("main"); !strings.Contains(text, shopTime(t, s).Format("2 Jan 2006, 15:04:05")) {
		t.Errorf("the time of the payment is not the shop's:\n%s", text)
	}
	page.Open(shared.console + list)
	reachEverything(t, page)
}

// A bookkeeper refunds a part of a payment on a phone. When the rail has paid it back, the console and the payer's page say so.
func TestConsole_Refund(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]browsertest.Settings{"with JavaScript": {Width: 390, Height: 844}, "without": {NoJavaScript: true, Width: 320, Height: 640}} {
		s, paid := payingShop(t)
		page := s.open(dan, settings)
		page.AllowErrors("422")
		check := func(what string) {
			t.Helper()
			if wide := browsertest.Eval[int](page, "document.documentElement.scrollWidth"); wide > int(settings.Width) {
				t.Errorf("%s: %d pixels wide on a screen of %d", what, wide, settings.Width)
			}
			if settings.NoJavaScript {
				checkConsolePage(t, page, what)
			}
		}
		page.Open(shared.console + s.path + "/payments?q=1002")
		page.Click(".payments a")
		check("the payment")
		page.Click("a[href$='/refund']")
		check("the form")
		reachEverything(t, page)
		page.Fill("#amount", "20")
		page.Fill("#reason", "one cup was cold")
		page.Click("main form button")
		if text := page.Text("[role=alert]"); !strings.Contains(text, "€12.50 can be refunded") {
			t.Errorf("%s: of too much the page says %q", name, text)
		}
		check("the form that was refused")
		page.Fill("#amount", "5")
		page.Click("main form button")
		if text := page.Text("main form"); !strings.Contains(text, "€5.00 will go back to the payer.") || !strings.Contains(text, "Refund €5.00") {
			t.Errorf("%s: the form asks\n%s", name, text)
		}
		check("the form that asks back")
		page.Do("for (const _ of [1, 2]) document.querySelector('main form button').click()") // a double click
		page.Until("the payment is shown", "location.pathname.endsWith('"+paid+"') && document.readyState === 'complete'")
		s.wantPath(page, s.path+"/payments/"+paid)
		if text := page.Text("#refunds"); !strings.Contains(text, "Asked for") || !strings.Contains(text, "one cup was cold") {
			t.Errorf("%s: the refunds are\n%s", name, text)
		}
		check("a refund that is asked for")
		payer := sharedBrowser.NewPage(t, browsertest.Settings{Width: 390, Height: 844})
		payer.Open(pageURL(paid))
		if text := payer.Text("main"); strings.Contains(text, "Refunded") {
			t.Errorf("%s: before the rail has paid back the payer sees\n%s", name, text)
		}
		s.confirmRefunds(paid, 1)
		page.Reload()
		if text := page.Text("main"); !strings.Contains(text, "Refunded\n€5.00") || strings.Contains(text, "Refund asked for") {
			t.Errorf("%s: after the rail has paid back the payment is\n%s", name, text)
		}
		payer.Reload()
		if text := payer.Text("main"); !strings.Contains(text, "Refunded\n€5.00") || !strings.Contains(text, "Paid") {
			t.Errorf("%s: the payer sees\n%s", name, text)
		}
		page.Open(shared.console + s.path + "/payments")
		if text := page.Text(".payments"); !strings.Contains(text, "Partly refunded €5.00 refunded") || !strings.Contains(text, "Given back") {
			t.Errorf("%s: the list is\n%s", name, text)
		}
		check("the list with a refund")
	}
}

// confirmRefunds pays back what is asked for of a session, as a rail does that finds it in its list. It must be so many refunds.
func (s consoleShop) confirmRefunds(id string, want int) {
	s.T.Helper()
	internal := shared.replicas[1].Internal
	answer, err := fixture.Call(http.DefaultClient, internal, http.MethodGet, "/internal/v1/refunds?limit=100", s.rail, "")
	var owed struct {
		Refunds []struct {
			SessionID   string `json:"sessionId"`
			PaymentRef  string `json:"paymentRef"`
			RefundRef   string `json:"refundRef"`
			Cause       string `json:"cause"`
			AmountCents int64  `json:"amountCents"`
		} `json:"refunds"`
	}
	if err == nil {
		err = json.Unmarshal(answer.Raw, &owed)
	}
	if err != nil {
		s.T.Fatal(err)
	}
	for _, refund := range owed.Refunds {
		if refund.SessionID != id || refund.Cause != "requested" {
			continue
		}
		want--
		answer, err := fixture.Call(http.DefaultClient, internal, http.MethodPost, "/internal/v1/sessions/"+id+"/refunds", s.rail,
			fmt.Sprintf(`{"paymentRef":%q,"refundRef":%q,"amountCents":%d}`, refund.PaymentRef, refund.RefundRef, refund.AmountCents))
		if err != nil || answer.Status != http.StatusOK {
			s.T.Fatalf("%d %s: %v", answer.Status, answer.Raw, err)
		}
	}
	if want != 0 {
		s.T.Errorf("the rail owes %s", answer.Raw)
	}
}

// `make screenshots` sets it.
var screenshots = flag.String("screenshots", "", "directory to write the screenshots of docs/console.md to; empty: nowhere")

// What is another in each run becomes what it is in the documentation.
const sampleTexts = `
	const samples = [[/mk_live_[a-z2-7]{12}_[0-9A-Za-z]{38}/g, 'mk_live_2yylmkzckvhj_THISISASAMPLEANDNOKEYATALL000000000000'],
		[/mk_live_[a-z2-7]{12}_[0-9A-Za-z]{4}\b/g, 'mk_live_2yylmkzckvhj_THIS'], [/mer_[a-z2-7]{12}/g, 'mer_45tolpnyxhz4'], [/shop-[a-z0-9]{5}\b/g, 'shops'], [/http:\/\/127[.]0[.]0[.]1:\d+/g, 'https://shop.example/hooks']];
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) for (const [real, sample] of samples) texts.currentNode.data = texts.currentNode.data.replace(real, sample);
	for (const time of document.querySelectorAll('time[data-shop]')) time.textContent = time.textContent.includes('today') ? 'today at 10:00' : '21 Nov, 10:00';
	for (const since of document.querySelectorAll('.chart time')) since.textContent = '14 Nov, 10:00';
	for (const day of document.querySelectorAll('#today h2 span')) day.textContent = 'Sat 21 Nov';
	for (const tick of document.querySelectorAll('.ticks span')) tick.textContent = tick.textContent.replace(/^\d+ [A-Z][a-z]+$/, '15 Nov');
	for (const time of document.querySelectorAll('time:not([data-shop])'))
		time.textContent = 'Nov 21, 2026, ' + (time.parentElement.parentElement.innerText.includes('works until') ? '11:00 AM' : '10:00 AM');
	for (const field of document.querySelectorAll('form[action="/"] input#q')) field.value = 'shops';
	document.activeElement.blur()`

// sellBefore repeats the last sale in the hours and days before, for pictures with more than one bar.
func (s consoleShop) sellBefore() {
	s.T.Helper()
	client, ctx, account := storetest.Inspect(s.T, shared.Redis), s.T.Context(), published.ID(s.merchant.UID)
	feed := storetest.Tag(account) + "feed:" + account
	entries := client.XRange(ctx, feed, "-", "+").Val()
	if len(entries) == 0 {
		s.T.Fatal("nothing was sold")
	}
	last, err := entries[len(entries)-1], client.Del(ctx, feed).Err()
	now, zone := time.Now(), s.merchant.Spec.TimeZone.Location()
	const sales, every = 110, 79 * time.Minute
	for i := range sales {
		at := now.Add(-time.Duration(sales-i) * every)
		for n := range (i*7 + i/9) % 6 {
			if hour := at.In(zone).Hour(); 7 <= hour && hour < 20 {
				err = errors.Join(err, client.XAdd(ctx, &redis.XAddArgs{Stream: feed, ID: fmt.Sprintf("%d-%d", at.UnixMilli(), n), Values: last.Values}).Err())
			}
		}
	}
	for _, entry := range entries {
		err = errors.Join(err, client.XAdd(ctx, &redis.XAddArgs{Stream: feed, ID: entry.ID, Values: entry.Values}).Err())
	}
	if err != nil {
		s.T.Fatal(err)
	}
}

// The picture of payments in docs/console.md.
func TestConsole_ScreenshotPayments(t *testing.T) {
	t.Parallel()
	s, paid := payingShop(t)
	s.sellBefore()
	page := s.open(dan, browsertest.Settings{})
	page.Open(shared.console + s.path + "/payments/" + paid + "/refund")
	page.Fill("#amount", "5")
	page.Click("main form button")
	page.Click("main form button")
	s.confirmRefunds(paid, 1)
	page.Open(shared.console + s.path + "/payments")
	takeScreenshot(t, page, "console-payments", "light", 900, 1000)
}

// The pictures of docs/console.md, each small.
func TestConsole_Screenshots(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(receiver.Close)
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) {
		m.Spec.DisplayName, m.Spec.Currency = "Acme Coffee", "EUR"
		m.Spec.Webhook = &v1alpha1.Webhook{URL: receiver.URL}
		m.Spec.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100}
		m.Spec.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.1", "203.0.113.0/24", "2001:db8::/48"}
	})
	s.Merchant("bakery", func(m *v1alpha1.Merchant) { m.Spec.DisplayName = "Blue Bakery" })
	s.Merchant("cinema", func(m *v1alpha1.Merchant) {
		m.Spec.DisplayName, m.Spec.State = "Cinema Ritz", v1alpha1.MerchantSuspended
	})
	page := s.open(alice, browsertest.Settings{})
	take := func(name, colour string, width, height int64) {
		t.Helper()
		takeScreenshot(t, page, name, colour, width, height)
	}
	key := s.issue(page, "till-1")
	s.rotate(page, "till-1", keyPrefix(key), "3600")
	take("console-rotate", "light", 360, 730)
	page.Click("main form button")
	take("console-key", "dark", 360, 730)
	rail, newest := s.RailToken(), shownKey(page)
	_, paid := s.ApiKey("web-shop", s.merchant.Name)
	s.awaitKey(paid)
	for i, cents := range []int{1250, 480, 2350} {
		id := s.charge(paid, cents, strconv.Itoa(1001+i))
		s.pay(rail, id, "card-"+strconv.Itoa(1001+i), "COMPLETED", cents)
	}
	page.Click("main a.button")
	s.Eventually("the webhook is disabled, and the page has all that needs attention", func() bool {
		page.Open(shared.console + s.path)
		return strings.Contains(page.Text("#attention"), "we stopped sending") && strings.Contains(page.Text("#attention"), "not delivered") && strings.Contains(page.Text("#keys"), "web-shop Live")
	})
	s.wantNowhere("on the merchant's page", page, newest)
	s.Eventually("the list shows all merchants", func() bool {
		page.Open(shared.console + "/?q=" + s.Namespace)
		return strings.Contains(page.Text("main"), "3 merchants")
	})
	take("console-merchants", "light", 900, 400)
	page.Open(shared.console + s.path)
	take("console-merchant", "light", 1000, 800)
	take("console-merchant-phone", "dark", 390, 844)
}

func takeScreenshot(t *testing.T, page *browsertest.Page, name, colour string, width, height int64) {
	t.Helper()
	const most = 100_000 // bytes
	page.SetMedia("", colours[colour])
	page.SetViewport(width, height, 1)
	page.Do(sampleTexts)
	picture := page.WindowScreenshot()
	if len(picture) > most {
		t.Errorf("%s: %d bytes", name, len(picture))
	}
	if *screenshots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o600); err != nil {
		t.Error(err)
	}
}
