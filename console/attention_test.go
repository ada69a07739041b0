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
	f.grant(user(alice), []string{"get", "editwebhook", "editallowlist"})
	page := f.signedIn(alice).Get(t, f.URL+"/merchants/"+f.namespace+"/acme")
	_, list, _ := strings.Cut(page.Text, `<ul class="attention">`)
	list, _, _ = strings.Cut(list, "</ul>")
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
