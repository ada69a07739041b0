// Package console tests what people do in the console, with all roles and an OpenID provider: keys work, and are nowhere else.
package console

import (
	"errors"
	"flag"
	"log"
	"net/http"
	"net/url"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/console"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

var (
	shared     *fixture.Installation
	identities *oidctest.Provider
	api        fixture.Replica
	operator   *kubeproxy.Proxy
	consoleURL string

	alice = oidctest.User{Username: "alice", Password: "a", Name: "Alice"}
	bob   = oidctest.User{Username: "bob", Password: "b", Name: "Bob"}
)

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	if err := run(m); err != nil {
		log.Fatal(err)
	}
}

func run(m *testing.M) (err error) {
	shared, err = fixture.Install()
	defer func() { err = errors.Join(err, shared.Close()) }()
	if err != nil {
		return err
	}
	provider, stop, err := oidctest.New(shared.Dir, alice, bob)
	shared.OnClose(stop)
	if err != nil {
		return err
	}
	identities = provider
	if err := startOperator(); err != nil {
		return err
	}
	if api, err = shared.StartAPIServer("apiserver", func(*apiserver.Options) {}); err != nil {
		return err
	}
	if consoleURL, _, err = shared.StartConsole("console", api.Internal, identities.Issuer, func(*console.Options) {}); err != nil {
		return err
	}
	m.Run() // the testing package reports its result when TestMain returns
	return nil
}

// startOperator starts the operator, with a proxy before its Kubernetes API.
func startOperator() error {
	proxy, kubeconfig, err := shared.Proxy(fixture.OperatorAccount, "operator")
	if err != nil {
		return err
	}
	operator = proxy
	_, err = shared.StartOperator("operator", func(o *controllers.Options) { o.Kubeconfig = kubeconfig })
	return err
}

// shop is a tenant with one merchant, and Alice as its integrator.
type shop struct {
	fixture.Tenant

	merchant *v1alpha1.Merchant
	alice    oidctest.Browser
	page     string // URL of the merchant
}

func newShop(t *testing.T) shop {
	t.Helper()
	tenant := fixture.NewTenant(t, shared.Client)
	s := shop{Tenant: tenant, merchant: tenant.Merchant("acme"), alice: oidctest.NewBrowser(t)}
	s.page = consoleURL + "/merchants/" + tenant.Namespace + "/acme"
	s.bind("alice", "merchant-operator-merchant-integrator")
	identities.SignIn(t, s.alice, consoleURL+"/sign-in", alice)
	tenant.Eventually("alice may act, and the API knows the merchant", func() bool {
		return s.alice.Get(t, s.page+"/new-key").Status == http.StatusOK
	})
	return s
}

// bind gives a person a ClusterRole in the namespace.
func (s shop) bind(user, role string) {
	s.T.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "oidc:" + user}},
	}
	if err := shared.Client.Create(s.T.Context(), binding); err != nil {
		s.T.Fatal(err)
	}
}

// keyIn returns the key that a page shows.
func keyIn(t testing.TB, page oidctest.Page) string {
	t.Helper()
	key := page.Key()
	if page.Status != http.StatusOK || key == "" {
		t.Fatalf("%s shows no key: %d %s\n%s", page.URL, page.Status, page.Text, &shared.Logs)
	}
	if page.Header.Get("Cache-Control") != "no-store" || strings.Contains(page.URL.String(), key) {
		t.Errorf("the page with the key may be stored: %v, %s", page.Header, page.URL)
	}
	return key
}

func (s shop) issue(name string) string {
	s.T.Helper()
	return keyIn(s.T, s.alice.Post(s.T, s.page+"/new-key", url.Values{"name": {name}}))
}

// status is the API's answer to a charge with the key.
func (s shop) status(key string) int {
	s.T.Helper()
	answer, err := fixture.Call(http.DefaultClient, api.Public, http.MethodPost, fixture.Sessions, key, `{"amountCents": 1250}`)
	if err != nil {
		s.T.Fatal(err)
	}
	return answer.Status
}

func (s shop) wantStatus(what, key string, want int) {
	s.T.Helper()
	if got := s.status(key); got != want {
		s.T.Errorf("%s: %d, want %d", what, got, want)
	}
}

// hidden is the value of a hidden field of a form.
func (s shop) hidden(page oidctest.Page, name string) string {
	s.T.Helper()
	value := page.Hidden(name)
	if value == "" {
		s.T.Fatalf("%s has no field %s: %d %s", page.URL, name, page.Status, page.Text)
	}
	return value
}
