package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// A person adds a refused network to the form with one click, saves it, and nothing that is not in the status.
func TestAllowlist_BlockedNetworks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", func(m *v1alpha1.Merchant) {
		m.Spec.IPAllowlist, m.Spec.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistReport
	})
	seen := metav1.Now()
	m.Status.Allowlist = &v1alpha1.AllowlistStatus{OtherRequests: 12, Refused: []v1alpha1.RefusedBlock{
		{Block: "198.51.100.0/24", Requests: 212, LastSeen: seen}, {Block: "2001:db8::/48", Requests: 1, LastSeen: seen},
	}}
	if err := cluster.Client.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	path := f.URL + "/merchants/" + f.namespace + "/acme"
	f.grant(user(many), []string{"get"})
	if page := f.signedIn(many).Get(t, path); !strings.Contains(page.Text, "198.51.100.0/24") || strings.Contains(page.Text, "?add=") {
		t.Errorf("who may only see: %s", page.Text)
	}
	f.grant(user(alice), []string{"get", "editallowlist"})
	browser := f.signedIn(alice)
	page := browser.Get(t, path)
	for _, want := range []string{"The list only reports", "212 requests", "</code> 1 request, the last", "12 requests came from other networks", path[len(f.URL):] + "/allowlist?add=198.51.100.0%2f24"} {
		if !strings.Contains(page.Text, want) {
			t.Errorf("%q is not on the page: %s", want, page.Text)
		}
	}
	if form := browser.Get(t, path+"/allowlist?add=192.0.2.0/24"); strings.Contains(form.Text, "192.0.2.0/24") {
		t.Error("a link adds what was not refused")
	}
	form := browser.Get(t, path+"/allowlist?add=2001:db8::/48")
	if !strings.Contains(form.Text, "203.0.113.0/24\n2001:db8::/48</textarea>") || !strings.Contains(form.Text, "is new on the list") {
		t.Errorf("the form: %s", form.Text)
	}
}

// A key with a list of its own: what that refuses is not offered for the merchant's list, and a check of an address names the key.
func TestAllowlist_Key(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", func(m *v1alpha1.Merchant) { m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	f.apiKey(m, "till-2")
	key := f.apiKey(m, "till-1")
	key.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"}
	if err := cluster.Client.Update(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	m.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{
		{Block: "203.0.113.0/24", KeyID: published.ID(key.UID), Requests: 3, LastSeen: metav1.Now()},
	}}
	if err := cluster.Client.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	path := f.URL + "/merchants/" + f.namespace + "/acme"
	f.grant(user(alice), []string{"get", "editallowlist"})
	browser := f.signedIn(alice)
	for address, want := range map[string]struct{ answer, key bool }{
		"203.0.113.7": {true, false}, "203.0.113.8": {true, true}, "198.51.100.7": {false, false},
	} {
		page := browser.Get(t, path+"?address="+address)
		if got := strings.Contains(page.Text, "Requests from this address pass."); got != want.answer {
			t.Errorf("%s passes: %t", address, got)
		}
		if got := strings.Contains(page.Text, "Not with the key till-1"); got != want.key || strings.Contains(page.Text, "Not with the key till-2") {
			t.Errorf("%s: the key is named: %t", address, got)
		}
	}
	page := browser.Get(t, path)
	if !strings.Contains(page.Text, "not on the own list of key till-1") || strings.Contains(page.Text, "?add=") {
		t.Errorf("the page: %s", page.Text)
	}
	if form := browser.Get(t, path+"/allowlist?add=203.0.113.0/24"); strings.Contains(form.Text, "is new on the list") {
		t.Error("a link adds what the merchant's list has not refused")
	}
}

// A wrong entry is answered with the right one, in the form with what was typed.
func TestEditAllowlist_WrongEntries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	f.grant(user(alice), []string{"get", "editallowlist"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/allowlist"
	for typed, want := range map[string]string{
		"203.0.113.7/24":          "use 203.0.113.0/24 for all of it",
		"203.0.113.7\n10.1.2.3/8": "use 10.0.0.0/8 for all of it",
		"2001:db8::1/48":          "use 2001:db8::/48 for all of it",
		"shop.example":            "“shop.example” is no address: use a form like 203.0.113.7 or 203.0.113.0/24.",
		"203.0.113.0/33":          "“203.0.113.0/33” is no address",
	} {
		page := browser.Post(t, path, url.Values{"generation": {"1"}, "allowlist": {typed}, "confirmed": {"yes"}})
		if page.Status != http.StatusUnprocessableEntity || !strings.Contains(page.Text, want) || !strings.Contains(page.Text, typed+"</textarea>") {
			t.Errorf("%q: %d %s", typed, page.Status, page.Text)
		}
	}
}
