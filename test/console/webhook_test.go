package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// A webhook is set, and its signing secret rotated once by one form.
func TestTheWebhook(t *testing.T) {
	s := newShop(t)
	form := s.alice.Get(t, s.page+"/webhook")
	page := s.alice.Post(t, form.URL.String(), url.Values{
		"generation": {s.hidden(form, "generation")}, "url": {"https://shop.example/hooks"}, "events": {"session.completed", "no.such.event"},
	})
	if page.Status != http.StatusOK || !strings.Contains(page.Text, "https://shop.example/hooks") {
		t.Fatalf("%d: %s", page.Status, page.Text)
	}
	form = s.alice.Get(t, s.page+"/webhook/rotate-secret")
	for want, generation := range map[int]string{http.StatusOK: s.hidden(form, "generation"), http.StatusUnprocessableEntity: "1"} {
		if page := s.alice.Post(t, form.URL.String(), url.Values{"generation": {generation}}); page.Status != want {
			t.Errorf("a form of generation %s: %d: %s", generation, page.Status, page.Text)
		}
	}
	var merchant v1alpha1.Merchant
	if err := shared.Client.Get(t.Context(), client.ObjectKeyFromObject(s.merchant), &merchant); err != nil {
		t.Fatal(err)
	}
	webhook := merchant.Spec.Webhook
	if webhook == nil || len(webhook.Events) != 1 || webhook.RotationTrigger == "" {
		t.Errorf("the webhook is %+v", webhook)
	}
}
