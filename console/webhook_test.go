package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
)

// Before the URL is removed a person hears what waits for it.
func TestEditWebhook_RemoveWithWaitingEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.grant(user(alice), []string{"get", "editwebhook"})
	browser := f.signedIn(alice)
	for _, test := range []struct {
		name      string
		waiting   int
		confirmed bool
		says      string
		removed   bool
	}{
		{name: "none waits", removed: true},
		{name: "one waits", waiting: 1, says: "1 event waits for delivery."},
		{name: "two wait", waiting: 2, says: "2 events wait for delivery."},
		{name: "confirmed", waiting: 2, confirmed: true, says: "2 events wait for delivery.", removed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := f.merchant(strings.ReplaceAll(test.name, " ", "-"), withWebhook)
			for i := range test.waiting {
				event := feed.NewWebhookTest(published.ID(m.UID), "Acme", string(rune('a'+i)), time.Now())
				if _, err := f.outbox.RecordTest(t.Context(), event); err != nil {
					t.Fatal(err)
				}
			}
			page := f.URL + "/merchants/" + f.namespace + "/" + m.Name + "/webhook"
			if form := browser.Get(t, page); form.Status != http.StatusOK || !strings.Contains(form.Text, test.says) || strings.Contains(form.Text, "for delivery") != (test.waiting > 0) {
				t.Errorf("the form: %d %s", form.Status, form.Text)
			}
			values := url.Values{"generation": {"1"}, "url": {""}}
			if test.confirmed {
				values.Set("confirmed", "yes")
			}
			answer := browser.Post(t, page, values)
			if !test.removed && (answer.Status != http.StatusUnprocessableEntity || !strings.Contains(answer.Text, test.says) || !strings.Contains(answer.Text, `name="confirmed"`)) {
				t.Errorf("asked: %d %s", answer.Status, answer.Text)
			}
			var got v1alpha1.Merchant
			if err := f.objects.Get(t.Context(), client.ObjectKeyFromObject(m), &got); err != nil || (got.Spec.Webhook == nil) != test.removed {
				t.Errorf("the webhook is %+v, %v; removed: want %t", got.Spec.Webhook, err, test.removed)
			}
		})
	}
}
