package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

func TestTheProviderAway(t *testing.T) {
	directory := t.TempDir()
	provider, stop, err := oidctest.New(directory, alice)
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
	if page := provider.SignIn(t, browser, f.URL+"/", alice); page.URL.String() != f.URL+"/" {
		t.Fatalf("once the provider is back, signing in leads to %s", page.URL)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if page := browser.Get(t, f.URL+"/"); page.Status != http.StatusOK {
		t.Errorf("who is signed in gets %d", page.Status)
	}
}

func TestSignInWithManyGroups(t *testing.T) {
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
func TestReservedGroupsAreDropped(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Provider.GroupsPrefix = "" })
	f.merchant("acme")
	page := f.signedIn(mallory).Get(t, f.URL+"/")
	if strings.Contains(page.Text, "ACME") || strings.Contains(page.Text, "<script>") {
		t.Errorf("a claimed group system:masters, or a name with a script, has an effect:\n%s", page.Text)
	}
}

// The sign-in works with a provider that we did not write: discovery, PKCE, which it requires, groups, and sign-out.
func TestSignInAtANodeProvider(t *testing.T) {
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

	old := cookieOf(t, f, carol, loginCookie)
	if page := carol.Post(t, f.URL+"/sign-out", nil); page.URL.Path != "/signed-out" || cookieOf(t, f, carol, loginCookie).Value != "" {
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
