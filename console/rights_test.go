package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/merchants"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// A merchant that a person may not see looks like one that does not exist: in the list, on its page and in its length.
func TestRights_ForbiddenIsMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	f.merchant("globex")
	f.grant(user(alice), []string{"get"}, "acme")
	a, b := f.signedIn(alice), f.signedIn(bob)
	path := f.URL + "/merchants/" + f.namespace + "/"

	if page := a.Get(t, f.URL+"/?q="+f.namespace); !strings.Contains(page.Text, "ACME") || strings.Contains(page.Text, "GLOBEX") {
		t.Errorf("alice may see acme only, and sees %s", page.Text)
	}
	if page := a.Get(t, path+"acme"); page.Status != http.StatusOK || !strings.Contains(page.Text, "ACME") {
		t.Errorf("alice may see acme and gets %d", page.Status)
	}
	forbidden, missing := a.Get(t, path+"globex"), a.Get(t, path+"umbrel")
	if forbidden.Status != http.StatusNotFound || forbidden.Text != missing.Text || missing.Status != http.StatusNotFound {
		t.Errorf("forbidden: %d %s\nmissing: %d %s", forbidden.Status, forbidden.Text, missing.Status, missing.Text)
	}
	for name, page := range map[string]oidctest.Page{"list": b.Get(t, f.URL+"/"), "page": b.Get(t, path+"acme"), "search": b.Get(t, f.URL+"/?q=acme")} {
		if strings.Contains(page.Text, "ACME") {
			t.Errorf("bob may see nothing, and the %s shows %s", name, page.Text)
		}
	}
	if page := b.Get(t, f.URL+"/"); !strings.Contains(page.Text, "<code>oidc:bob</code>") {
		t.Errorf("the page does not say whom to give rights to: %s", page.Text)
	}
}

// The account of the console may have rights in some namespaces only. Merchants elsewhere are missing, no matter who asks.
func TestRights_WatchedNamespaces(t *testing.T) {
	t.Parallel()
	watched := newFixture(t)
	f := newFixture(t, func(o *Options) { o.WatchNamespaces = []string{watched.namespace} })
	watched.merchant("acme")
	f.create(&v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "globex"}, Spec: v1alpha1.MerchantSpec{DisplayName: "GLOBEX"}})
	watched.grant(user(alice), []string{"get"})
	f.grant(user(alice), []string{"get"})
	browser := f.signedIn(alice)
	await.Until(t, patience, "the list has the watched Merchant", func() bool { return strings.Contains(browser.Get(t, f.URL+"/").Text, "ACME") })
	if page := browser.Get(t, f.URL+"/?q=globex"); strings.Contains(page.Text, "GLOBEX") {
		t.Errorf("the list shows a Merchant of another namespace: %s", page.Text)
	}
	for path, want := range map[string]int{watched.namespace + "/acme": http.StatusOK, f.namespace + "/globex": http.StatusNotFound} {
		if page := browser.Get(t, f.URL+"/merchants/"+path); page.Status != want {
			t.Errorf("%s: %d, want %d", path, page.Status, want)
		}
	}
}

// A right that is taken away ends with the cached decision.
func TestRights_SightTakenAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	binding := f.grant(group("shop-staff"), []string{"get"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"
	if page := browser.Get(t, path); page.Status != http.StatusOK {
		t.Fatalf("alice gets %d", page.Status)
	}
	if err := cluster.Client.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	f.awaitRight(authz.NewSubject("anybody", []string{"oidc:shop-staff"}), "get", false, "any")
	f.advance(10 * time.Second)
	for _, address := range []string{path, f.URL + "/?q=" + f.namespace} {
		if page := browser.Get(t, address); strings.Contains(page.Text, "ACME") {
			t.Errorf("after the right was taken away %s shows %s", address, page.Text)
		}
	}
}

// A verb that is taken away is refused after ten seconds at most, in a form that was open meanwhile too.
func TestRights_VerbTakenAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	f.grant(user(alice), []string{"get"})
	binding := f.grant(user(alice), []string{"editallowlist"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/allowlist"
	save := func(block string) int {
		t.Helper()
		if err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			t.Fatal(err)
		}
		return browser.Post(t, path, url.Values{"generation": {strconv.FormatInt(m.Generation, 10)}, "allowlist": {block}, "confirmed": {"yes"}}).Status
	}
	if status := save("203.0.113.0/24"); status != http.StatusOK {
		t.Fatalf("with the verb: %d", status)
	}
	if err := cluster.Client.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	f.awaitRight(authz.NewSubject("oidc:alice", nil), "editallowlist", false, "acme")
	f.advance(10 * time.Second)
	if status := save("198.51.100.0/24"); status != http.StatusForbidden {
		t.Errorf("ten seconds after the verb was taken away: %d", status)
	}
	if got := m.Spec.IPAllowlist; len(got) != 1 || got[0] != "203.0.113.0/24" {
		t.Errorf("the allowlist is %v", got)
	}
}

// The list asks once for each namespace and right, and not again within the lifetime of a decision.
// It counts reviews, so no test runs beside it.
func TestRights_OneReviewPerNamespace(t *testing.T) {
	f := newFixture(t)
	for i := range 60 {
		f.merchant(fmt.Sprintf("shop-%02d", i))
	}
	f.grant(user(alice), []string{"get"})
	browser := f.signedIn(alice)
	asked := f.countReviews()
	namespaces := f.namespaces()
	page := browser.Get(t, f.URL+"/?q="+f.namespace)
	if !strings.Contains(page.Text, "60 merchants found") || strings.Count(page.Text, "<li>") != merchants.PageSize {
		t.Errorf("the first page: %s", page.Text)
	}
	if got := asked.Load(); got > int64(1+2*namespaces) { // for all; and for each namespace, who may see and who may see payments
		t.Errorf("%d reviews for 60 merchants in %d namespaces", got, namespaces)
	}
	before := asked.Load()
	page = browser.Get(t, f.URL+"/?q="+f.namespace+"&page=2")
	if strings.Count(page.Text, "<li>") != 60-merchants.PageSize || !strings.Contains(page.Text, "SHOP-59") {
		t.Errorf("the second page: %s", page.Text)
	}
	if got := asked.Load() - before; got != 0 {
		t.Errorf("%d reviews for what was decided a moment ago", got)
	}
	for _, number := range []string{"-1", "0", "99999999999999999999", "3", "x"} {
		if page := browser.Get(t, f.URL+"/?page="+number); page.Status != http.StatusOK || !strings.Contains(page.Text, "<li>") {
			t.Errorf("page %s: %d", number, page.Status)
		}
	}
}

// A person has a budget of reviews, and lists have another one: neither keeps other persons from their pages.
// It counts reviews, so no test runs beside it.
func TestRights_ReviewBudget(t *testing.T) {
	f := newFixture(t)
	f.merchant("acme")
	f.grant(user(alice), []string{"get"})
	browser := f.signedIn(alice)
	asked, started := f.countReviews(), time.Now()
	exhaust := func(budget string) {
		t.Helper()
		subject := authz.NewSubject("oidc:alice", nil)
		subject.Budget = budget
		for n := range 2 * authz.ReviewBudget.Burst {
			if _, err := f.rights.May(t.Context(), subject, "get", "nowhere", fmt.Sprintf("%s-%d", budget, n)); errors.Is(err, authz.ErrReviewBudget) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
		t.Errorf("%s has no end", budget)
	}
	exhaust("oidc:alice")
	most := authz.ReviewBudget.Burst + authz.ReviewBudget.RequestsPerSecond*int64(time.Since(started)/time.Second+1)
	if got := asked.Load(); got > most {
		t.Errorf("%d reviews, want %d at most", got, most)
	}
	if page := browser.Get(t, f.URL+"/merchants/"+f.namespace+"/acme"); page.Status != http.StatusTooManyRequests || page.Header.Get("Retry-After") == "" {
		t.Errorf("a page over the budget: %d %v", page.Status, page.Header)
	}
	if page := browser.Get(t, f.URL+"/?q="+f.namespace); page.Status != http.StatusOK || !strings.Contains(page.Text, "ACME") {
		t.Errorf("the list, with its own budget: %d %s", page.Status, page.Text)
	}
	f.advance(f.options.RightsLifetime) // and nothing is cached any more
	exhaust("oidc:alice list")          // of a person who is called so
	if page := browser.Get(t, f.URL+"/?q="+f.namespace); page.Status != http.StatusOK || strings.Contains(page.Text, "Not all merchants were checked") {
		t.Errorf("the list, while another person is over the budget: %d %s", page.Status, page.Text)
	}
	f.advance(f.options.RightsLifetime)
	exhaust("oidc:alice\x00list")
	if page := browser.Get(t, f.URL+"/?q="+f.namespace); page.Status != http.StatusOK || !strings.Contains(page.Text, "Not all merchants were checked") {
		t.Errorf("a list over the budget: %d %s", page.Status, page.Text)
	}
	if allowed, err := f.rights.May(t.Context(), authz.NewSubject("oidc:bob", nil), "get", f.namespace, "acme"); allowed || err != nil {
		t.Errorf("another person: %v, %v", allowed, err)
	}
}

// Too many Merchants that need a review each do not hide those behind them in a namespace with the right on all.
// It counts reviews, so no test runs beside it.
func TestRights_ManyElsewhere(t *testing.T) {
	f := newFixture(t)
	f.grant(user(alice), []string{"get"})
	var all []*v1alpha1.Merchant
	for i := range rights.MaxSingleReviews + 1 {
		all = append(all, &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: fmt.Sprintf("shop-%d", i)}})
	}
	ours := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "acme"}}
	seen, incomplete, err := f.rights.Visible(t.Context(), login.Person{User: "oidc:alice"}, append(all, ours))
	if err != nil || !incomplete || len(seen) != 1 || seen[0] != ours {
		t.Errorf("alice sees %v, incomplete: %v, %v; want acme, and that others were not checked", seen, incomplete, err)
	}
}

func (f *fixture) namespaces() int {
	f.t.Helper()
	var all v1alpha1.MerchantList
	if err := f.objects.Cache.List(f.t.Context(), &all); err != nil {
		f.t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range all.Items {
		found[m.Namespace] = true
	}
	return len(found)
}

// countReviews counts what the console asks the Kubernetes API from now on, with an empty cache.
func (f *fixture) countReviews() *atomic.Int64 {
	f.t.Helper()
	var asked atomic.Int64
	config := f.account()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			asked.Add(1)
			return next.RoundTrip(r)
		})
	})
	f.rights.Reviews = f.newReviewer(config)
	return &asked
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A person may have a right on every merchant of the cluster.
func TestRights_WholeCluster(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "all-merchants-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"merchant-operator.io"}, Resources: []string{"merchants"}, Verbs: []string{"get"}}},
	}
	f.create(role)
	subject := user(erin)
	subject.APIGroup = rbacv1.GroupName
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "all-merchants-"}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}
	f.create(binding)
	t.Cleanup(func() { _ = cluster.Client.Delete(context.WithoutCancel(t.Context()), binding) })
	f.awaitRight(authz.NewSubject("oidc:erin", nil), "get", true, "acme")
	browser := f.signedIn(erin)
	asked := f.countReviews()
	if page := browser.Get(t, f.URL+"/?q="+f.namespace); !strings.Contains(page.Text, "ACME") || asked.Load() > 3 { // the list; and the payments, of the namespace and of the Merchant
		t.Errorf("%d reviews; the page: %s", asked.Load(), page.Text)
	}
}
