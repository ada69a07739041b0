package browser

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// People of the console. Alice and Carol are developers of every merchant here; Bob has no right.
var (
	alice = oidctest.User{Username: "alice", Password: "a", Name: "Alice Ames", Groups: []string{"developers"}}
	carol = oidctest.User{Username: "carol", Password: "c", Name: "Carol Chen", Groups: []string{"developers"}}
	bob   = oidctest.User{Username: "bob", Password: "b", Name: "Bob"}
)

// consoleShop is a merchant of its own namespace, and what its people do.
type consoleShop struct {
	fixture.Tenant

	merchant *v1alpha1.Merchant
	path     string // of its page
}

func newConsoleShop(t *testing.T, change ...func(*v1alpha1.Merchant)) consoleShop {
	t.Helper()
	tenant := fixture.NewTenant(t, shared.Client)
	s := consoleShop{Tenant: tenant, merchant: tenant.Merchant("acme", change...), path: "/merchants/" + tenant.Namespace + "/acme"}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: "developers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "merchant-operator-merchant-integrator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "oidc:developers"}},
	}
	if err := shared.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	return s
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

func prefixOf(key string) string { return key[:len("mk_live_abcdefghijkl_ABCD")] }

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
		if strings.Contains(seen, key) || strings.Contains(seen, key[len(prefixOf(key)):]) {
			s.T.Errorf("%s: a key is where it must not be", when)
		}
	}
}
