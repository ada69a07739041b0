package console

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// The most urgent comes first.
func TestMerchantPage_AttentionInOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", withWebhook)
	f.disable(m)
	f.apiKey(m, "till-1")
	m.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{{Block: "203.0.113.0/24", Requests: 2, LastSeen: metav1.Now()}}}
	if err := cluster.Client.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	f.grant(user(alice), []string{"get", "viewpayments", "editwebhook", "editallowlist"})
	browser := f.signedIn(alice)
	page := browser.Get(t, f.URL+"/merchants/"+f.namespace+"/acme")
	attention := func(page string) string {
		_, list, _ := strings.Cut(page, `<ul class="attention">`)
		list, _, _ = strings.Cut(list, "</ul>")
		return list
	}
	list := attention(page.Text)
	if diff := cmp.Diff(list, attention(browser.Get(t, f.URL+"/merchants/"+f.namespace+"/acme/payments").Text)); diff != "" {
		t.Errorf("the page of payments has another list (-integrations +payments):\n%s", diff)
	}
	got := regexp.MustCompile(`(?:href|action)="([^"]*)"`).FindAllStringSubmatch(list, -1)
	links := slices.Collect(func(yield func(string) bool) {
		for _, match := range got {
			if !yield(strings.TrimPrefix(match[1], "/merchants/"+f.namespace+"/acme")) {
				return
			}
		}
	})
	if diff := cmp.Diff([]string{"/allowlist?add=203.0.113.0%2F24", "/webhook/resume", "/dead-letters/resend"}, links); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, list)
	}
	if strings.Index(page.Text, `id="attention"`) > strings.Index(page.Text, `id="keys"`) {
		t.Error("what needs attention is not first")
	}
}

// The examples of a first charge are folded away once there were charges, as far as the viewer may know.
func TestMerchantPage_FirstCharge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"
	const folded = `<details><summary><h2 id="first-charge-title">`
	if page := browser.Get(t, path); strings.Contains(page.Text, folded) || !strings.Contains(page.Text, `<h2 id="first-charge-title">`) {
		t.Errorf("before the first charge: %d %s", page.Status, page.Text)
	}
	f.paid(m, 1250)
	if page := browser.Get(t, path); !strings.Contains(page.Text, folded) {
		t.Errorf("after it: %s", page.Text)
	}
}
