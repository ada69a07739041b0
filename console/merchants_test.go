package console

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/await"
)

var tags = regexp.MustCompile(`<[^>]*>`)

// listed are the rows of the list, as text.
func listed(page string) []string {
	var rows []string
	for _, row := range regexp.MustCompile(`(?s)<li><a href="/merchants/.*?</li>`).FindAllString(page, -1) {
		rows = append(rows, strings.Join(strings.Fields(tags.ReplaceAllString(row, " ")), " "))
	}
	return rows
}

// Who has one shop goes straight in, also with a bookmark of the list; the list itself is a click away.
func TestListMerchants_One(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	f.merchant("globex")
	f.grant(user(dora), []string{"get"}, "acme")
	browser, path := f.signedIn(dora), "/merchants/"+f.namespace+"/acme"
	if page := browser.Get(t, f.URL+"/"); page.Status != http.StatusOK || page.URL.Path != path {
		t.Errorf("without the right to see payments: %d %s", page.Status, page.URL)
	}
	f.grant(user(dora), []string{"viewpayments"}, "acme")
	if page := browser.Get(t, f.URL+"/"); page.Status != http.StatusOK || page.URL.Path != path+"/payments" {
		t.Errorf("%d %s", page.Status, page.URL)
	}
	for _, list := range []string{"/?all=yes", "/?q=" + f.namespace} {
		if page := browser.Get(t, f.URL+list); page.URL.Path != "/" || len(listed(page.Text)) != 1 {
			t.Errorf("%s leads to %s with %q", list, page.URL, listed(page.Text))
		}
	}
}

// Merchants that need attention come first, with what it is; what was paid is for those who may see payments.
func TestListMerchants_AttentionAndToday(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	quiet, busy := f.merchant("acme"), f.merchant("bakery", berlin)
	f.merchant("closed", func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
	gone, refused, keys := f.merchant("gone", withWebhook), f.merchant("refused"), f.merchant("till")
	f.disable(gone)
	refused.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{
		{Block: "203.0.113.0/24", Requests: 2, LastSeen: metav1.NewTime(f.clock().Add(-time.Hour))}, {Block: "198.51.100.0/24", Requests: 1, LastSeen: metav1.NewTime(f.clock().Add(-48 * time.Hour))},
	}}
	if err := cluster.Client.Status().Update(t.Context(), refused); err != nil {
		t.Fatal(err)
	}
	for name, condition := range map[string]string{"lost": "KeyLost", "old": "OldKeyInUse"} {
		key := f.apiKey(keys, name)
		for i := range key.Status.Conditions {
			if key.Status.Conditions[i].Type == "OldKeyInUse" {
				key.Status.Conditions[i] = metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}
			}
		}
		if err := cluster.Client.Status().Update(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	now := f.clock()
	reader := &fakePayments{Store: f.store, all: map[store.Account][]store.EndedSession{
		live(quiet): {ended(quiet, 1, session.Completed, 100, now), ended(quiet, 2, session.Failed, 100, now), ended(quiet, 3, session.Completed, 100, now.Add(-49*time.Hour))},
	}}
	for i := range 100 + 1 {
		reader.all[live(busy)] = append(reader.all[live(busy)], ended(busy, i, session.Completed, 100, now))
	}
	f.payments.Store = reader
	f.grant(user(alice), []string{"get"})
	f.grant(user(alice), []string{"viewpayments"}, "acme", "bakery")
	browser := f.signedIn(alice)
	want := []string{
		"GONE N/gone Webhook disabled Events not delivered", "REFUSED N/refused Address refused", "TILL N/till Key lost Old key in use",
		"ACME N/acme 1 paid today", "BAKERY N/bakery more than 100 paid today", "CLOSED N/closed Suspended",
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "N/", f.namespace+"/")
	}
	var page string
	await.Seeing(t, patience, "the console knows what the statuses say", func() (string, bool) {
		page = browser.Get(t, f.URL+"/?q="+f.namespace).Text
		diff := cmp.Diff(want, listed(page))
		return diff, diff == ""
	})
	if !strings.Contains(page, "3 need attention") {
		t.Errorf("the page does not count them: %s", page)
	}
}
